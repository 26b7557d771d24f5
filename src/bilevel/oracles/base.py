"""The narrow waist: everything that an algorithm may ask of a problem.

All vectors are flat. `rows` names rows of the inner data (of the outer data for f), None all.

Derivatives by x come as covectors, which can be added; `pull` makes a vector of x from their sum.
For most oracles the two are the same. Where x enters through features (a few-shot embedding),
covectors are of the features, and the pass back through the network is paid for once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from bilevel.problem.sampling import Streams
from bilevel.problem.sources import Rows


@dataclass(frozen=True)
class Step:
    """One inner step, y ← y − lr ∇y g(x, y; rows)."""

    rows: Rows
    lr: float

    def apply(self, oracle: Oracle, x: Tensor, y: Tensor) -> Tensor:
        return y.sub(oracle.inner_gradient(x, y, self.rows), alpha=self.lr)


class Sweep(NamedTuple):
    """What goes back over inner steps y_{t+1} = y_t − α_t ∇y g(x, y_t), the last one first.

    Args:
        r: Π_t (I − α_t ∇²y g(x, y_t)) applied to the vector that it started with.
        total: Σ_t α_t r_t, where r_t is r before it goes back over step t.
        covector: what it started with minus Σ_t α_t ∇x∇y g(x, y_t) r_t.
    """

    r: Tensor
    total: Tensor
    covector: Tensor


class Series(NamedTuple):
    """v ≈ H⁻¹b by r ← (I − η H(B)) r from r = b on, for B in `batches` one after another.

    Args:
        batches: of the Hessians.
        lr: η.
        scale: of v.
        summed: whether v is made of the sum of all r on the way, or of the last.
    """

    batches: Sequence[Rows]
    lr: float
    scale: float
    summed: bool


class Batched(NamedTuple):
    """One implicit estimate by batches, drawn before: all that it needs but x and y.

    Args:
        steps: that y takes.
        outer: the rows of f.
        series: how v is found.
        cross: the rows of the cross product.
    """

    steps: Sequence[Step]
    outer: Rows
    series: Series
    cross: Rows


class Implicit(NamedTuple):
    """What `Oracle.implicit` finds.

    Args:
        y: after the steps.
        v: of the series, from ∇y f(x, y) on.
        covector: ∇x f(x, y) − ∇x∇y g(x, y) v.
    """

    y: Tensor
    v: Tensor
    covector: Tensor


class Linearization(ABC):
    """∇y g around one point (x, y) on one batch: paid for once, many products."""

    @abstractmethod
    def gradient(self) -> Tensor:
        """∇y g(x, y)."""

    @abstractmethod
    def hvp(self, v: Tensor) -> Tensor:
        """∇²y g(x, y) v."""

    @abstractmethod
    def cross(self, v: Tensor) -> Tensor:
        """∇x∇y g(x, y) v, the covector of ∂/∂x ⟨∇y g(x, y), v⟩."""

    def hvp_and_cross(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Both products with one v, which may share work."""
        return self.hvp(v), self.cross(v)

    @abstractmethod
    def diagonal(self) -> Tensor:
        """The diagonal of ∇²y g(x, y), or NotImplementedError with a remedy."""

    @abstractmethod
    def approximate_inverse(self) -> Callable[[Tensor], Tensor]:
        """The best cheap approximation of v ↦ (∇²y g)⁻¹ v, symmetric and positive definite."""


class Oracle(ABC):
    """Values, gradients and products of a bilevel problem on flat vectors."""

    x_size: int
    y_size: int
    inner_rows: int | None  # rows of the data of g, None without data
    outer_rows: int | None
    shared_batch: int | None  # rows that an outer step shows to both losses; None for all
    chunk: int | None  # rows of a shared batch that are worked on at a time; None for all
    seed: int
    dtype: torch.dtype
    device: torch.device

    @abstractmethod
    def outer_value(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        """f(x, y)."""

    @abstractmethod
    def inner_value(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        """g(x, y)."""

    @abstractmethod
    def outer_gradient(self, x: Tensor, y: Tensor, rows: Rows = None) -> tuple[Tensor, Tensor]:
        """(∇x f, ∇y f), the first a covector."""

    @abstractmethod
    def inner_gradient(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        """∇y g."""

    @abstractmethod
    def inner_value_and_gradient(
        self, x: Tensor, y: Tensor, rows: Rows = None
    ) -> tuple[Tensor, Tensor]:
        """(g, ∇y g), for solvers with a line search."""

    @abstractmethod
    def linearize(self, x: Tensor, y: Tensor, rows: Rows = None) -> Linearization:
        """∇y g around (x, y), ready for products."""

    def descend(self, x: Tensor, y: Tensor, steps: Sequence[Step]) -> Tensor:
        """y after these inner steps."""
        y = y.clone()
        for step in steps:
            y.sub_(self.inner_gradient(x, y, step.rows), alpha=step.lr)
        return y

    def trace(self, x: Tensor, y: Tensor, steps: Sequence[Step]) -> Tensor:
        """y before each of these inner steps, and after the last, each in a row."""
        path = y.new_empty(len(steps) + 1, len(y))
        path[0] = y
        for t, step in enumerate(steps):
            path[t + 1] = step.apply(self, x, path[t])
        return path

    def retrace(self, x: Tensor, path: Tensor, steps: Sequence[Step], sweep: Sweep) -> Sweep:
        """The sweep, gone on over these steps from path[t], the last one first."""
        r, total, covector = sweep.r, sweep.total.clone(), sweep.covector
        for y, step in zip(reversed(path.unbind()), reversed(steps), strict=True):
            hvp, cross = self.linearize(x, y, step.rows).hvp_and_cross(r)
            total.add_(r, alpha=step.lr)
            covector, r = covector.sub(cross, alpha=step.lr), r.sub(hvp, alpha=step.lr)
        return Sweep(r, total, covector)

    def contract(
        self, x: Tensor, y: Tensor, r: Tensor, batches: Sequence[Rows], lr: float
    ) -> tuple[Tensor, Tensor]:
        """(I − η ∇²y g(x, y; B)) r, for B in `batches` one after another, and the sum on the way.

        The sum is r_0 + r_1 + ..., from r itself to what comes out.
        """
        total = r.clone()
        for rows in batches:
            r = r.sub(self.linearize(x, y, rows).hvp(r), alpha=lr)
            total.add_(r)
        return r, total

    def implicit(self, x: Tensor, y: Tensor, drawn: Batched) -> Implicit:
        """Inner steps, outer gradient, series and cross product, as many as one estimate has."""
        series = drawn.series
        y = self.descend(x, y, drawn.steps)
        outer_x, outer_y = self.outer_gradient(x, y, drawn.outer)
        last, total = self.contract(x, y, outer_y, series.batches, series.lr)
        v = (total if series.summed else last) * series.scale
        return Implicit(y, v, outer_x - self.linearize(x, y, drawn.cross).cross(v))

    @abstractmethod
    def pull(self, x: Tensor, covector: Tensor, rows: Rows = None) -> Tensor:
        """The derivative by x that a covector stands for."""

    @abstractmethod
    def start(self, x: Tensor, y: Tensor) -> Tensor:
        """Where the inner steps start, if the problem makes it depend on x; else y."""

    @abstractmethod
    def pull_start(self, x: Tensor, r: Tensor, rows: Rows = None) -> Tensor:
        """The covector of ∂/∂x ⟨start(x), r⟩."""

    def streams(self, step: int) -> Streams:
        """The random choices of outer step `step`."""
        return Streams(self.seed, step, self.inner_rows, self.outer_rows)
