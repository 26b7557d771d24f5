"""What every inner solver refuses."""

import dataclasses

import pytest
from bilevel.inner import InnerSolver

from bilevel import inner

SOLVERS = [
    getattr(inner, name)
    for name in inner.__all__
    if dataclasses.is_dataclass(getattr(inner, name))
    and issubclass(getattr(inner, name), InnerSolver)
]
RIGHT = {"steps": 3, "lr": 0.1, "batch": 2}
WRONG = {
    "drop": [-0.5, float("nan"), "0.1"],
    "steps": [0, -1, 1.5, True, "3", None],
    "lr": [0, -0.5, float("nan"), float("inf"), "0.1", None],
    "batch": [0, -2, 1.5, True],
    "tol": [0, -1e-3, float("nan"), None],
    "memory": [0, 2.5],
    "cg_steps": [0, -3],
    "products": [0, -1, 1.5, "8", None],
    "preconditioner": ["jacobi", 2.0],
}


def make(solver, **changes):
    known = {field.name for field in dataclasses.fields(solver)}
    return solver(**{name: v for name, v in {**RIGHT, **changes}.items() if name in known})


def test_every_solver_of_the_contract_is_found():
    assert {"GradientDescent", "SGD", "LBFGS", "NewtonCG"} <= {s.__name__ for s in SOLVERS}


@pytest.mark.parametrize(
    ("solver", "name", "value"),
    [
        pytest.param(solver, field.name, value, id=f"{solver.__name__}-{field.name}-{value}")
        for solver in SOLVERS
        for field in dataclasses.fields(solver)
        for value in WRONG[field.name]
    ],
)
def test_wrong_argument_raises_and_quotes_its_name_and_value(solver, name, value):
    with pytest.raises(ValueError) as error:
        make(solver, **{name: value})
    assert name in str(error.value)
    assert repr(value) in str(error.value)


def test_schedule_of_wrong_step_sizes_raises_at_construction():
    with pytest.raises(ValueError, match=r"lr must be a positive number, got -1\.0"):
        inner.SGD(steps=3, lr=lambda t: -1.0, batch=1)


def test_unknown_solver_is_answered_with_those_there_are():
    with pytest.raises(AttributeError, match=r"no 'Adam'.*GradientDescent.*SGD"):
        inner.Adam  # noqa: B018
