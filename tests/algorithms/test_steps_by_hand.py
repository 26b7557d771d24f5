"""Whole steps of stochastic methods against their papers' formulas, written out row by row.

The problem is a finite sum of quadratics, so that every derivative is a product with matrices that
are there; the rows are those that the step's streams give.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import bilevel
from bilevel.algorithms import BSA, SABA, SOBA, TTSA, StocBiO
from bilevel.oracles import Views
from bilevel.schedules import decaying

from ..truth.quadratics import noisy_sum

STEPS, ROWS = 9, 13
SIZES = [pytest.param((3, 5), id="x 3, y 5"), pytest.param((1, 2), id="x 1, y 2")]


class Sum:
    """The derivatives of noisy_sum on some rows, in NumPy: g_i = ½y'A_i y − y'(B_i x + c_i)."""

    def __init__(self, sizes: tuple[int, int], dtype: torch.dtype = torch.float64) -> None:
        self.quadratic = noisy_sum(rows=ROWS, sizes=sizes)
        parts = {name: getattr(self.quadratic, name).to(dtype) for name in "ABcts"}
        self.problem = type(self.quadratic)(**parts, rho=2.0, kappa=3.0).problem()
        self.A, self.B, self.c, self.t, self.s = (parts[name].numpy() for name in "ABcts")

    def g(self, x: Any, y: Any, rows: Any) -> Any:
        return np.mean([self.A[i] @ y - self.B[i] @ x - self.c[i] for i in rows], axis=0)

    def hv(self, v: Any, rows: Any) -> Any:
        return np.mean([self.A[i] @ v for i in rows], axis=0)

    def jv(self, v: Any, rows: Any) -> Any:
        return -np.mean([self.B[i].T @ v for i in rows], axis=0)

    def f_y(self, y: Any, rows: Any) -> Any:
        return np.mean([y - self.t[j] for j in rows], axis=0)

    def f_x(self, x: Any) -> Any:
        return 2.0 * (x - self.s)


def taken(problem: bilevel.Problem, algorithm: Any, seed: int) -> list[Any]:
    """(x, y) after each step that `minimize` takes, one at a time."""
    seen: list[Any] = []
    bilevel.minimize(
        problem,
        algorithm,
        steps=STEPS,
        seed=seed,
        callbacks=[lambda p: seen.append((p.state.x.numpy(), p.state.y.numpy()))],
    )
    return seen


def drawn(rows: Any) -> list[int]:
    return list(range(ROWS)) if rows is None else rows.tolist()


def agree(seen: list[Any], expected: list[Any], within: float) -> None:
    assert len(seen) == len(expected) == STEPS
    for one, other in zip(seen, expected, strict=True):
        for found, right in zip(one, other, strict=True):
            assert np.abs(found - right).max() <= within * max(1.0, np.abs(right).max())


def single_loop(case: Sum, batch: int, seed: int, remembers: bool) -> list[Any]:
    """SOBA, or with SAGA's memory of each quantity SABA: all three move from the old points."""
    views = Views(case.problem, seed)
    x, y, v = np.zeros_like(case.s), np.zeros_like(case.c[0]), np.zeros_like(case.c[0])
    blocks = [range(i, min(i + batch, ROWS)) for i in range(0, ROWS, batch)]

    def inside(rows: Any) -> list[Any]:
        return [case.g(x, y, rows), case.hv(v, rows), case.jv(v, rows)]

    def outside(rows: Any) -> list[Any]:
        return [case.f_x(x), case.f_y(y, rows)]

    kept = [[inside(rows) for rows in blocks], [outside(rows) for rows in blocks]]
    found = []
    for k in range(STEPS):
        streams = views.at(k).whole.streams(k)
        estimates: list[Any] = []
        for role, values, memory in zip(("inner", "outer"), (inside, outside), kept, strict=True):
            if not remembers:
                estimates += values(drawn(streams.rows(role, batch)))
                continue
            i = streams.block(role, batch).number
            new = values(blocks[i])
            mean = [
                sum(len(b) / ROWS * m[q] for b, m in zip(blocks, memory, strict=True))
                for q in range(len(new))
            ]
            # A block is drawn as often as its share, so that this is unbiased.
            estimates += [n - o + m for n, o, m in zip(new, memory[i], mean, strict=True)]
            memory[i] = new
        g, Hv, Jv, f_x, f_y = estimates
        x, y, v = x - 0.03 * (f_x - Jv), y - 0.1 * g, v - 0.1 * (Hv - f_y)
        found.append((x, y))
    return found


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("batch", [1, 4, 5])
@pytest.mark.parametrize("kind", [SOBA, SABA])
def test_single_loops_take_the_papers_steps(kind: Any, batch: int, sizes: Any) -> None:
    case = Sum(sizes)
    algorithm = kind(inner_lr=0.1, outer_lr=0.03, batch=batch)
    seen = taken(case.problem, algorithm, seed=3)
    agree(seen, single_loop(case, batch, 3, kind is SABA), 1e-12)


def double_loop(
    case: Sum, seed: int, batch: int, D: int, Q: int, rates: Any, whole: bool
) -> list[Any]:
    """D inner steps, the series up to the power Q or one random term for all of it, then x."""
    views = Views(case.problem, seed)
    x, y = np.zeros_like(case.s), np.zeros_like(case.c[0])
    found = []
    for k in range(STEPS):
        streams = views.at(k).whole.streams(k)
        inner, outer = rates(k)
        for rows in streams.batches("inner", batch, D):
            y = y - inner * case.g(x, y, drawn(rows))
        r = case.f_y(y, drawn(streams.rows("outer", batch)))
        count = Q if whole else streams.below(Q)
        total = r
        for rows in streams.batches("hessian", batch, count):
            r = r - 0.2 * case.hv(r, drawn(rows))
            total = total + r
        v = 0.2 * total if whole else Q * 0.2 * r
        x = x - outer * (case.f_x(x) - case.jv(v, drawn(streams.rows("cross", batch))))
        found.append((x, y))
    return found


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["double", "single"])
def test_ttsa_takes_the_papers_steps(dtype: torch.dtype, batch: int, sizes: Any) -> None:
    case = Sum(sizes, dtype)
    slow, fast = decaying(0.05, power=3 / 5), decaying(0.2, power=2 / 5)
    algorithm = TTSA(inner_lr=fast, outer_lr=slow, neumann_terms=7, neumann_lr=0.2, batch=batch)

    def rates(k: int) -> tuple[float, float]:
        return 0.2 * (k + 1) ** -0.4, 0.05 * (k + 1) ** -0.6

    expected = double_loop(case, 5, batch, 1, 7, rates, whole=False)
    agree(taken(case.problem, algorithm, 5), expected, 1e-12 if dtype == torch.float64 else 1e-5)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("batch", [1, 4])
def test_bsa_takes_the_papers_steps(batch: int, sizes: Any) -> None:
    case, series = Sum(sizes), {"neumann_terms": 7, "neumann_lr": 0.2}
    algorithm = BSA(inner_steps=3, inner_lr=0.2, outer_lr=0.05, batch=batch, **series)
    expected = double_loop(case, 2, batch, 3, 7, lambda k: (0.2, 0.05), whole=False)
    agree(taken(case.problem, algorithm, 2), expected, 1e-12)


@pytest.mark.parametrize("sizes", SIZES)
def test_stocbio_takes_the_papers_steps(sizes: Any) -> None:
    case, series = Sum(sizes), {"neumann_terms": 4, "neumann_lr": 0.2}
    algorithm = StocBiO(inner_steps=3, inner_lr=0.2, outer_lr=0.05, batch=4, **series)
    expected = double_loop(case, 2, 4, 3, 4, lambda k: (0.2, 0.05), whole=True)
    agree(taken(case.problem, algorithm, 2), expected, 1e-12)
