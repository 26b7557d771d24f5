"""Every algorithm on problems of every kind, in short runs: no end is called what it is not.

The truth is that of dense Hessians in float64. What is asked for is a share of the norm at the
start, so that estimates that are wrong, biased or lucky meet it often.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import pytest
import torch
from torch import Tensor

import bilevel
from bilevel import updates
from bilevel.algorithms import Algorithm, registry

from ..truth.dense_truth import hypergradient
from ..truth.quadratics import noisy_sum, quadratic
from ..truth.small_problems import cleaning, softmax
from ..truth.stationarity import assert_true, inner_solution

STEPS = 12


def ridge() -> bilevel.Problem:
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(30, 4, generator=generator, dtype=torch.float64)
    b = X[:, 0] + torch.randn(30, generator=generator, dtype=torch.float64)

    def fit(y: Tensor, batch: bilevel.Batch) -> Tensor:
        return (batch.data[0] @ y - batch.data[1]).square().mean()

    return bilevel.Problem(
        outer=lambda x, y, batch: fit(y, batch),
        inner=lambda x, y, batch: fit(y, batch) + (x.exp() * y.square()).sum(),
        x0=torch.zeros(4, dtype=torch.float64),
        y0=torch.zeros(4, dtype=torch.float64),
        inner_data=(X[:15], b[:15]),
        outer_data=(X[15:], b[15:]),
    )


def plain(outer: Any, inner: Any, x0: float, y0: float, size: int = 2) -> bilevel.Problem:
    start = torch.linspace(0.5, 1.0, size, dtype=torch.float64)
    return bilevel.Problem(outer, inner, x0 * start, y0 * start)


PROBLEMS: dict[str, Callable[[], bilevel.Problem]] = {
    "κ = 1": lambda: quadratic(1.0).problem(),
    "κ = 100": lambda: quadratic(100.0).problem(),
    "κ = 1e4": lambda: quadratic(1e4).problem(),
    "noisy rows": lambda: noisy_sum(10).problem(),
    "ridge": ridge,
    "softmax": lambda: softmax(12, 3, 2),
    "cleaning": lambda: cleaning(8),
    "log cosh": lambda: plain(
        lambda x, y: (y - 1).square().sum(),
        lambda x, y: (2 * (y - x)).cosh().log().sum() + 0.05 * y.square().sum(),
        x0=3.0,
        y0=-1.0,
    ),
    "double well": lambda: plain(
        lambda x, y: (y - 2).square().sum(),
        lambda x, y: (y**4 / 4 - y**2 / 2 - 0.1 * x * y).sum(),
        x0=0.1,
        y0=0.05,
    ),
    "singular": lambda: plain(
        lambda x, y: (y - x).square().sum() + y[1],
        lambda x, y: (y[0] - x.sum()).square(),
        x0=1.0,
        y0=0.0,
    ),
}
NOT_CONVEX = ("double well", "singular")


def algorithms(name: str, even: bool) -> Iterator[Algorithm]:
    """As in a demonstration; with a memory outside; with steps too short inside or long outside."""
    entry = registry()[name]
    known = [field.name for field in fields(entry.algorithm)]  # type: ignore[arg-type]
    if "outer" not in known:  # it finds its own steps
        yield entry.make()
        return
    small = {"batch": 4} if "batch" in entry.demo else {}
    yield entry.make(**small)
    yield entry.make(**small, outer=updates.Adam(0.3), outer_lr=None)
    if even and "inner_lr" in entry.demo:
        yield entry.make(**small, inner_lr=1e-4)
    else:
        yield entry.make(**small, outer_lr=3.0)


def scale(problem: bilevel.Problem) -> float:
    try:
        y = inner_solution(problem, problem.x0, problem.y0)
        return float(hypergradient(problem, problem.x0, y).norm())
    except torch.linalg.LinAlgError:
        return 1.0


FOUND: Counter[str] = Counter()


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize("name", registry())
def test_no_word_is_false(name: str, kind: str) -> None:
    problem = PROBLEMS[kind]()
    even = (list(registry()).index(name) + list(PROBLEMS).index(kind)) % 2 == 0
    size = scale(problem)
    for number, algorithm in enumerate(algorithms(name, even)):
        tol = size * (0.5, 0.05)[number % 2]
        result = bilevel.minimize(problem, algorithm, steps=STEPS, tol=tol, seed=number)
        FOUND[str(assert_true(problem, result, tol))] += 1
        if kind == "singular":
            assert result.status != "converged"


def test_the_grid_met_every_word() -> None:
    """Else it would prove little."""
    if sum(FOUND.values()) < 200:
        pytest.skip("only a part of the grid was run")
    assert min(FOUND[word] for word in ("converged", "doubtful", "diverged", "step_limit")) >= 5
