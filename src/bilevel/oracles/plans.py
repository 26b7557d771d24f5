"""Whole loops as data, which an oracle may run faster than step by step.

A plan says what is to be done and what that costs; `plainly` does it point by point. Callers use
`do(plan, oracle)`: a model that has a faster way offers it in `accelerate`, with the same answer
up to rounding, and the bill is the same either way. A new fused loop is a new plan here and a case
in the model that has it: no wrapper changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar, cast

from torch import Tensor

from bilevel.oracles.points import Oracle, Plan
from bilevel.oracles.prices import CROSS, GRADIENT, HVP, OUTER, Price
from bilevel.problem.sources import Rows

Done = TypeVar("Done")


def do(plan: Plan[Done], oracle: Oracle) -> Done:
    """Carry it out in the fastest way that the oracle offers.

    Example:
        >>> import torch
        >>> from bilevel.oracles import do, make
        >>> from bilevel.oracles.plans import Descend, Step
        >>> from bilevel.problem.examples import halves
        >>> steps = [Step(None, 0.25)] * 2  # on all rows
        >>> do(Descend(torch.ones(2), torch.zeros(2), steps), make(halves()))
        tensor([1.5000, 1.5000])
    """
    done = oracle.accelerate(plan)
    return plan.plainly(oracle) if done is None else cast(Done, done)


class Step(NamedTuple):
    """One inner step, y ← y − lr ∇y g(x, y; rows)."""

    rows: Rows
    lr: float


# Plans hold tensors, whose comparison has no single truth value: hence eq=False.
@dataclass(frozen=True, eq=False)
class Descend(Plan[Tensor]):
    """y after these inner steps (the paper, Algorithm 1, lines 4 to 6).

    Args:
        x, y: where they start.
        steps: the steps, in order.
        look: None, or called before each step by a form that takes them one by one; it may raise
            to stop.
    """

    x: Tensor
    y: Tensor
    steps: Sequence[Step]
    look: Callable[[], None] | None = None

    def plainly(self, oracle: Oracle) -> Tensor:
        # A working copy: the given y belongs to a state, which no step may change.
        y = self.y.clone()
        for rows, lr in self.steps:
            y.sub_(oracle.inner(self.x, y, rows).gradient(), alpha=lr)
        return y

    def bill(self) -> list[tuple[Price, Rows]]:
        return [(GRADIENT, step.rows) for step in self.steps]


@dataclass(frozen=True, eq=False)
class Trace(Plan[Tensor]):
    """y before each of these inner steps and after the last, one per row: what ITD keeps."""

    x: Tensor
    y: Tensor
    steps: Sequence[Step]

    def plainly(self, oracle: Oracle) -> Tensor:
        # One block of memory for all iterates: ITD keeps vectors, not graphs.
        path = self.y.new_empty(len(self.steps) + 1, len(self.y))
        path[0] = self.y
        for t, (rows, lr) in enumerate(self.steps):
            path[t + 1] = path[t].sub(oracle.inner(self.x, path[t], rows).gradient(), alpha=lr)
        return path

    def bill(self) -> list[tuple[Price, Rows]]:
        return [(GRADIENT, step.rows) for step in self.steps]


class Sweep(NamedTuple):
    """What is carried back over inner steps y_{t+1} = y_t − α_t ∇y g(x, y_t), last one first.

    Args:
        r: Π_t (I − α_t ∇²y g(x, y_t)) applied to its initial value.
        total: Σ_t α_t r_t, where r_t is r before it is carried back over step t.
        covector: its initial value minus Σ_t α_t ∇x∇y g(x, y_t) r_t.
    """

    r: Tensor
    total: Tensor
    covector: Tensor


@dataclass(frozen=True, eq=False)
class Retrace(Plan[Sweep]):
    """The sweep, continued over these steps from path[t], last one first (Proposition 2)."""

    x: Tensor
    path: Tensor
    steps: Sequence[Step]
    sweep: Sweep

    def plainly(self, oracle: Oracle) -> Sweep:
        r, total, covector = self.sweep.r, self.sweep.total.clone(), self.sweep.covector
        # The factors of Proposition 2 from j = D − 1 down: r is their product so far, applied to
        # ∇y f. Each linearisation is dropped before the next is made.
        for y, (rows, lr) in zip(reversed(self.path.unbind()), reversed(self.steps), strict=True):
            hvp, cross = oracle.linearize(self.x, y, rows).both(r)
            total.add_(r, alpha=lr)
            covector, r = covector.sub(cross, alpha=lr), r.sub(hvp, alpha=lr)
        return Sweep(r, total, covector)

    def bill(self) -> list[tuple[Price, Rows]]:
        both = HVP + CROSS
        return [(both, step.rows) for step in self.steps]


@dataclass(frozen=True, eq=False)
class Contract(Plan[tuple[Tensor, Tensor]]):
    """r ← (I − η ∇²y g(x, y; B)) r for B in `batches`, one after another (Algorithm 3).

    Returns the last r, and the sum of all of them, including the initial `r`.
    """

    x: Tensor
    y: Tensor
    r: Tensor
    batches: Sequence[Rows]
    lr: float

    def plainly(self, oracle: Oracle) -> tuple[Tensor, Tensor]:
        r, total = self.r, self.r.clone()  # Algorithm 3, line 5: r_Q = v_0
        for rows in self.batches:  # lines 6 to 8, from i = Q down to 1: a fresh batch B_i each time
            r = r.sub(oracle.linearize(self.x, self.y, rows).hvp(r), alpha=self.lr)
            total.add_(r)
        return r, total  # line 9, v_Q = η Σ_i r_i, except for the factor η: `Series.v`

    def bill(self) -> list[tuple[Price, Rows]]:
        return [(HVP, rows) for rows in self.batches]


class Series(NamedTuple):
    """v ≈ H⁻¹b by r ← (I − η H(B)) r, starting from r = b.

    Args:
        batches: those of the Hessians; in a solver's plan, before they are drawn, their sizes.
        lr: η.
        scale: the factor of v.
        summed: whether v comes from the sum of all r, or from the last one.
    """

    batches: Sequence[Rows]
    lr: float
    scale: float
    summed: bool

    def v(self, last: Tensor, total: Tensor) -> Tensor:
        # All terms are stocBiO's sum; the last alone is the random truncation of BSA and TTSA.
        return (total if self.summed else last) * self.scale


class Found(NamedTuple):
    """An implicit estimate: y after the steps, v, and ∇x f(x, y) − ∇x∇y g(x, y) v."""

    y: Tensor
    v: Tensor
    covector: Tensor


@dataclass(frozen=True, eq=False)
class Implicit(Plan[Found]):
    """One implicit estimate on batches that were drawn beforehand.

    This is stocBiO's outer step without the move of x: the paper, Algorithm 2, lines 4 to 12.

    Args:
        steps: those of y, on batches S_t.
        outer: the rows D_F of f.
        series: how v is found, with batches B_j.
        cross: the rows D_G of the cross product.
    """

    x: Tensor
    y: Tensor
    steps: Sequence[Step]
    outer: Rows
    series: Series
    cross: Rows

    def plainly(self, oracle: Oracle) -> Found:
        x, series = self.x, self.series
        # Lines 4 to 7: y_k^t = y_k^{t−1} − α ∇y G(x_k, y_k^{t−1}; S_{t−1}).
        y = do(Descend(x, self.y, self.steps), oracle)
        # Line 8 is done: all batches were drawn before. Line 9: v_0 = ∇y F(x_k, y_k^D; D_F).
        outer_x, outer_y = oracle.outer(x, y, self.outer).gradient()
        # Line 10, which is Algorithm 3: v_Q = η Σ_i r_i with r_{i−1} = r_i − η ∇²y G(B_i) r_i.
        r, total = do(Contract(x, y, outer_y, series.batches, series.lr), oracle)
        v = series.v(r, total)
        # Line 11: ∇x∇y G(x_k, y_k^D; D_G) v_Q.
        cross = oracle.linearize(x, y, self.cross).cross(v)
        # Line 12: the estimate of ∇Φ(x_k). Line 13 is the caller's, after `pull`.
        return Found(y, v, outer_x - cross)

    def bill(self) -> list[tuple[Price, Rows]]:
        steps = [(GRADIENT, step.rows) for step in self.steps]
        products = [(HVP, rows) for rows in self.series.batches]
        return [*steps, (OUTER, self.outer), *products, (CROSS, self.cross)]
