"""What every inner solver refuses."""

import pytest
from bilevel.inner import InnerSolver

import bilevel
from bilevel import inner

from ...truth.examples import example, offered, wrong_arguments

SOLVERS = offered(inner, InnerSolver)
RIGHT = {"steps": 3, "lr": 0.1, "batch": 2, "update": bilevel.updates.Momentum(0.1)}
WRONG = {
    "drop": [-0.5, float("nan"), "0.1"],
    "steps": [0, -1, 1.5, True, "3", None],
    "lr": [0, -0.5, float("nan"), float("inf"), "0.1", None],
    "batch": [0, -2, 1.5, True],
    "tol": [0, -1e-3, float("nan"), None],
    "memory": [0, 2.5],
    "cg_steps": [0, -3],
    "preconditioner": ["jacobi", 2.0],
    "update": ["adam", 0.1, bilevel.updates.Adam, None],
    "keep": [1, "yes", None],
}


def test_every_solver_of_the_contract_is_found():
    assert {"GradientDescent", "SGD", "LBFGS", "NewtonCG", "Steps"} <= SOLVERS.keys()


@pytest.mark.parametrize(("solver", "name", "value"), wrong_arguments(SOLVERS.values(), WRONG))
def test_wrong_argument_raises_and_quotes_its_name_and_value(solver, name, value):
    kind = TypeError if name in ("update", "keep") else ValueError
    with pytest.raises(kind) as error:
        example(solver, **{**RIGHT, name: value})
    assert name in str(error.value)
    assert repr(value) in str(error.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("margin", 0),
        ("margin", float("nan")),
        ("margin", "1"),
        ("batch", 0),
        ("batch", 1.5),
        ("batch", True),
        *(("products", value) for value in [0, -1, 1.5, "8", None]),
    ],
)
def test_a_measurement_checks_its_own_arguments(name, value):
    with pytest.raises(ValueError) as error:
        inner.Measured(**{name: value})
    assert name in str(error.value)
    assert repr(value) in str(error.value)


def test_schedule_of_wrong_step_sizes_raises_at_construction():
    with pytest.raises(ValueError, match=r"lr must be a positive number, got -1\.0"):
        inner.SGD(steps=3, lr=lambda t: -1.0, batch=1)


def test_unknown_solver_is_answered_with_those_there_are():
    with pytest.raises(AttributeError, match=r"no 'Adam'.*GradientDescent.*SGD"):
        inner.Adam  # noqa: B018
