"""Wrong arguments of methods and runs raise, with the value that is wrong and what to do."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import bilevel

from ..truth.quadratics import noisy_sum
from ..truth.raised_errors import assert_raises, claims

_REGISTRY = bilevel.algorithms.registry()
_ARGUMENTS = [
    (name, field.name)
    for name, entry in _REGISTRY.items()
    for field in dataclasses.fields(entry.algorithm)
]


_WITH = {
    argument: [n for n, owned in _ARGUMENTS if owned == argument] for _, argument in _ARGUMENTS
}


def plain(size: int = 2) -> bilevel.Problem:
    return bilevel.Problem(
        outer=lambda x, y: (y**2).sum(),
        inner=lambda x, y: ((y - x) ** 2).sum(),
        x0=torch.ones(size),
        y0=torch.zeros(size),
    )


def on_rows(rows: int) -> bilevel.Problem:
    def fit(x: Tensor, y: Tensor, batch: bilevel.Batch) -> Tensor:
        return ((y - x - batch.data) ** 2).mean()

    data = torch.ones(rows, 2)
    return bilevel.Problem(fit, fit, torch.ones(2), torch.zeros(2), data, data)


@pytest.mark.parametrize("name", _REGISTRY)
def test_a_number_that_no_tensor_holds_is_refused(name: str) -> None:
    entry = _REGISTRY[name]
    for field in dataclasses.fields(entry.algorithm):
        if isinstance(entry.demo.get(field.name), int | float):
            with pytest.raises(ValueError, match=r"must be|data have only 4"):
                bilevel.minimize(on_rows(4), entry.make(**{field.name: 2**70}), steps=1)


_ODD: list[Any] = [1.5, object(), torch.ones(2), 3, [], {}]


@pytest.mark.parametrize("name", ["checkpoint", "clock", "state", "after", "metrics", "algorithm"])
def test_what_is_no_object_of_its_kind_is_refused(name: str) -> None:
    for odd in _ODD[: -1 if name == "metrics" else None]:
        with pytest.raises(TypeError, match=f"{name} must be an object such as"):
            bilevel.minimize(plain(), **{name: odd}, steps=1)


def run(algorithm: Any = None, problem: Any = None, **arguments: Any) -> bilevel.Result:
    algorithm = bilevel.algorithms.AIDBiO() if algorithm is None else algorithm
    problem = plain() if problem is None else problem
    return bilevel.minimize(problem, algorithm, **{"steps": 1, **arguments})


def hypergradient(x: Any = None, y: Any = None, method: Any = None, inner: Any = None) -> Any:
    x, y = (torch.ones(2) if part is None else part for part in (x, y))
    return bilevel.hypergradient(plain(), x, y, method, inner)


@pytest.mark.parametrize(("name", "argument"), _ARGUMENTS)
@pytest.mark.parametrize("value", ["wrong", -1, float("nan")], ids=str)
def test_every_argument_of_every_algorithm_is_checked_when_it_is_made(
    name: str, argument: str, value: Any
) -> None:
    with pytest.raises((ValueError, TypeError)) as raised:
        _REGISTRY[name].make(**{argument: value})
    assert f"got {value!r}" in str(raised.value)


@pytest.mark.parametrize("name", _WITH["outer"])
def test_an_update_and_a_step_size_together_are_refused_and_both_quoted(name: str) -> None:
    update = bilevel.updates.Adam(0.037)
    with pytest.raises(ValueError) as raised:
        _REGISTRY[name].algorithm(outer_lr=0.123, outer=update)
    assert "outer_lr = 0.123" in str(raised.value)
    assert f"outer = {update!r}" in str(raised.value)


@pytest.mark.parametrize("name", _WITH["outer"])
def test_every_algorithm_takes_an_update_alone(name: str) -> None:
    update = bilevel.updates.Adam(0.037)
    algorithm = _REGISTRY[name].algorithm(outer=update)
    assert (algorithm.outer, algorithm.outer_lr) == (update, None)
    given = _REGISTRY[name].make(outer=update, outer_lr=None)
    start = noisy_sum(rows=20).problem()
    moved = bilevel.minimize(start, given, steps=1).x - start.x0
    # Adam's first step is its learning rate, whatever the gradient.
    assert moved.abs().tolist() == pytest.approx([0.037] * 3, rel=1e-5)


@pytest.mark.parametrize(
    ("arguments", "quoted"),
    [({"cg_steps": 7}, "cg_steps = 7"), ({"cg_tol": 0.25}, "cg_tol = 0.25")],
    ids=str,
)
def test_a_linear_solver_and_numbers_for_cg_are_refused_and_both_quoted(
    arguments: dict[str, Any], quoted: str
) -> None:
    solver = bilevel.linear.Neumann(5, 0.1)
    with pytest.raises(ValueError) as raised:
        bilevel.algorithms.AIDBiO(solver=solver, **arguments)
    assert quoted in str(raised.value)
    assert f"solver = {solver!r}" in str(raised.value)


@pytest.mark.parametrize("name", _REGISTRY)
def test_an_argument_that_an_algorithm_does_not_have_raises(name: str) -> None:
    with pytest.raises(TypeError, match="inner_stepz"):
        _REGISTRY[name].make(inner_stepz=3)


@pytest.mark.parametrize("name", _WITH["outer_lr"])
def test_a_schedule_that_goes_wrong_raises_at_that_step(name: str) -> None:
    algorithm = _REGISTRY[name].make(outer_lr=lambda k: 0.1 - k)
    with pytest.raises(ValueError, match=r"lr must be a positive number, got -0\.9"):
        bilevel.minimize(on_rows(20), algorithm, steps=3)


@pytest.mark.parametrize("name", _WITH["batch"])
def test_a_batch_larger_than_the_data_raises_at_the_first_step(name: str) -> None:
    algorithm = _REGISTRY[name].make(batch=21)
    if isinstance(algorithm, bilevel.algorithms.SABA):
        pytest.skip("its last block ends with the rows")
    with pytest.raises(ValueError, match=r"batch of 21 rows.*only 20: use a smaller batch"):
        bilevel.minimize(on_rows(20), algorithm, steps=1)


@pytest.mark.parametrize("name", ["bsa", "stocbio", "ttsa"])
def test_an_unknown_batch_role_raises_with_those_there_are(name: str) -> None:
    with pytest.raises(ValueError, match=r"\['outter'\].*cross.*hessian.*inner.*outer"):
        _REGISTRY[name].make(batch={"inner": 2, "outter": 2})


@pytest.mark.parametrize("name", _WITH["inner_steps"])
def test_numpys_numbers_are_numbers(name: str) -> None:
    algorithm = _REGISTRY[name].make(inner_steps=np.int64(2), outer_lr=np.float32(0.5))
    result = bilevel.minimize(on_rows(20), algorithm, steps=1)
    assert result.counts.gc_g == _REGISTRY[name].make(inner_steps=2, outer_lr=0.5).price(0).gc_g


@claims(
    ("no steps", lambda: run(steps=0), ValueError, "steps must be an integer of at least 1, got 0"),
    ("negative steps", lambda: run(steps=-3), ValueError, "steps must be an integer … got -3"),
    ("a negative seed", lambda: run(seed=-1), ValueError, "seed must be an integer … got -1"),
    ("a negative tolerance", lambda: run(tol=-1.0), ValueError, "tol must be … got -1.0"),
    ("no time", lambda: run(seconds=0), ValueError, "seconds must be a positive … got 0"),
    ("never evaluated", lambda: run(evaluate_every=0), ValueError, "evaluate_every … got 0"),
    (
        "an algorithm by name",
        lambda: run("stocbio"),
        TypeError,
        r"algorithm must be … bilevel.algorithms.AIDBiO\(\), got 'stocbio'",
    ),
    (
        "an algorithm's class",
        lambda: run(bilevel.algorithms.StocBiO),
        TypeError,
        r"algorithm must be an object such as … got <class",
    ),
    (
        "a function as the problem",
        lambda: run(problem=len),
        TypeError,
        r"problem must be … bilevel.Problem\(...\), got <built-in function len>",
    ),
    ("one callback", lambda: run(callbacks=print), TypeError, r"callbacks must be … \[function"),
    ("a number as callback", lambda: run(callbacks=[3]), TypeError, "must be functions, got 3"),
    ("metrics in a list", lambda: run(metrics=[len]), TypeError, "metrics must be … {'name'"),
    ("a metric's name", lambda: run(metrics={"a": "b"}), TypeError, "must be functions, got 'b'"),
    (
        "another problem's state",
        lambda: run(problem=plain(2), state=run(problem=plain(3)).state, steps=2),
        ValueError,
        r"state's x and y have \[3, 3\] numbers, the problem's \[2, 2\]: continue with the problem",
    ),
    (
        "an optimiser by name",
        lambda: bilevel.algorithms.AIDBiO(outer="lion", outer_lr=0.1),
        TypeError,
        r"outer must be an object such as bilevel.updates.Adam … TorchOptimizer … got 'lion'",
    ),
    (
        "a function that makes no optimiser",
        lambda: run(bilevel.algorithms.AIDBiO(outer=bilevel.updates.TorchOptimizer(len))),
        TypeError,
        "factory <built-in function len> must make a torch optimiser … made 1",
    ),
    (
        "an inner solver's class",
        lambda: bilevel.algorithms.AIDBiO(inner=bilevel.inner.LBFGS),
        TypeError,
        r"inner must be an object such as bilevel.inner.LBFGS\(tol=1e-6\), got <class",
    ),
    (
        "Neumann steps too large for the given convexity",
        lambda: bilevel.algorithms.StocBiO(neumann_lr=1.0, strong_convexity=2.0),
        ValueError,
        "must be below 1 … = 2.0: use a smaller lr",
    ),
)
def test_a_wrong_run_raises(provoke: Callable[[], Any], error: type[Exception], text: str) -> None:
    assert_raises(provoke, error, text)


@claims(
    (
        "ITD without steps",
        lambda: hypergradient(method=bilevel.ITD()),
        ValueError,
        r"ITD differentiates inner steps: say which, … inner=bilevel.inner.GradientDescent\(",
    ),
    (
        "ITD of L-BFGS",
        lambda: hypergradient(method=bilevel.ITD(), inner=bilevel.inner.LBFGS()),
        ValueError,
        "ITD … LBFGS is not made of them. Use GradientDescent, SGD or Steps, or AID",
    ),
    ("ITD of -1 steps", lambda: bilevel.ITD(truncate=-1), ValueError, "truncate must … got -1"),
    ("ITD's stride", lambda: bilevel.ITD(checkpoint=-2), ValueError, "checkpoint must … got -2"),
    (
        "a linear solver's class",
        lambda: bilevel.AID(bilevel.linear.CG),
        TypeError,
        r"solver must be an object such as bilevel.linear.CG\(steps=20\), got <class",
    ),
    (
        "one number as AID's batch sizes",
        lambda: bilevel.AID(batch=3),
        TypeError,
        r"batch must be an object such as bilevel.BatchSizes\(outer=8, cross=8\), got 3",
    ),
    (
        "a method by name",
        lambda: hypergradient(method="aid"),
        TypeError,
        r"method must be an object such as bilevel.AID\(\) or bilevel.ITD\(\), got 'aid'",
    ),
    (
        "a linear solver as the method",
        lambda: hypergradient(method=bilevel.linear.CG()),
        TypeError,
        r"method must be … bilevel.AID\(\) … got CG\(steps=20",
    ),
    ("an inner solver by name", lambda: hypergradient(inner="gd"), TypeError, "inner … got 'gd'"),
    (
        "x of another shape",
        lambda: hypergradient(x=torch.ones(3)),
        ValueError,
        r"x0 must be a tensor of shape \(2,\), got shape \(3,\)",
    ),
    (
        "x of another structure",
        lambda: hypergradient(x={"a": torch.ones(2)}),
        ValueError,
        r"x0 was given as \['x0'\], but now as \[\"x0\['a'\]\"\]",
    ),
    (
        "y of another dtype",
        lambda: hypergradient(y=torch.ones(2).double()),
        ValueError,
        "y has dtype torch.float64 … y0 has torch.float32 … Convert",
    ),
    (
        "x with a NaN",
        lambda: hypergradient(x=torch.tensor([1.0, float("nan")])),
        ValueError,
        "x holds 1 values that are NaN or infinite: start from finite",
    ),
    (
        "the start of the inner problem with a NaN",
        lambda: bilevel.solve_inner(plain(), torch.ones(2), y=torch.full((2,), float("nan"))),
        ValueError,
        "y holds 2 values that are NaN or infinite",
    ),
    (
        "an inner solver by name, to solve with",
        lambda: bilevel.solve_inner(plain(), torch.ones(2), "newton"),
        TypeError,
        "inner must be … got 'newton'",
    ),
    (
        "a negative seed, to check with",
        lambda: bilevel.check_hypergradient(plain(), torch.ones(2), seed=-1),
        ValueError,
        "seed must be an integer … got -1",
    ),
    (
        "a batch larger than the data, for AID",
        lambda: bilevel.hypergradient(
            on_rows(4),
            torch.ones(2),
            torch.ones(2),
            bilevel.AID(batch=bilevel.BatchSizes(outer=5)),
        ),
        ValueError,
        "batch of 5 rows … 'outer' … only 4: use a smaller batch",
    ),
)
def test_a_wrong_evaluation_raises(
    provoke: Callable[[], Any], error: type[Exception], text: str
) -> None:
    assert_raises(provoke, error, text)
