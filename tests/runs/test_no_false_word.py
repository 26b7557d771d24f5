"""Every algorithm on problems of every kind, in short runs: no end is called what it is not.

The truth is that of dense Hessians in float64. What is asked for is a share of the norm at the
start, so that estimates that are wrong, biased or lucky meet it often.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

import bilevel
from bilevel import updates
from bilevel.algorithms import Algorithm, Entry, registry

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


def settings(entry: Entry) -> list[dict[str, Any]]:
    """As in a demonstration; with a memory outside; too short steps inside; too long outside."""
    known = [field.name for field in fields(entry.algorithm)]  # type: ignore[arg-type]
    if "outer" not in known:  # it finds its own steps
        return [{}]
    found = [{}, {"outer": updates.Adam(0.3), "outer_lr": None}, {"outer_lr": 3.0}]
    if "inner_lr" in entry.demo:
        found.append({"inner_lr": 1e-4})
    small = {"batch": 4} if "batch" in entry.demo else {}
    return [{**small, **changes} for changes in found]


def chosen(name: str, kind: str) -> tuple[int, Algorithm]:
    """One of the settings; another one on the next problem, and of the next algorithm."""
    entry = registry()[name]
    every = settings(entry)
    number = (list(registry()).index(name) + list(PROBLEMS).index(kind)) % len(every)
    return number, entry.make(**every[number])


@cache
def scale(kind: str) -> float:
    problem = PROBLEMS[kind]()
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
    number, algorithm = chosen(name, kind)
    tol = scale(kind) * (0.5, 0.05)[number % 2]
    result = bilevel.minimize(problem, algorithm, steps=STEPS, tol=tol, seed=number)
    FOUND[str(assert_true(problem, result, tol))] += 1
    if kind == "singular":
        assert result.status != "converged"


def test_the_grid_met_every_word() -> None:
    """Else it would prove little."""
    if sum(FOUND.values()) < 200:
        pytest.skip("only a part of the grid was run")
    assert min(FOUND[word] for word in ("converged", "doubtful", "diverged", "step_limit")) >= 5
