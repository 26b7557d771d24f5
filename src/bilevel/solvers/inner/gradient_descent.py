"""Gradient descent, on all rows or on batches."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bilevel.arguments import BatchSize, Count
from bilevel.oracles.plans import Step
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import Cost
from bilevel.problem.sampling import Streams
from bilevel.solvers.inner.base import GradientSteps
from bilevel.solvers.measured import Measured, Rate, rates


@dataclass(frozen=True)
class _Descent(GradientSteps):
    """A number of steps of given lengths."""

    steps: Count
    lr: Rate

    def price(self) -> Cost:
        return Cost(gc_g=self.steps, hv=None if isinstance(self.lr, Measured) else 0)


@dataclass(frozen=True)
class GradientDescent(_Descent):
    """`steps` times y ← y − lr ∇y g(x, y).

    With lr ≤ 1/L the distance to y*(x) shrinks by at least √(1 − lr·μ) per step.

    Args:
        steps: D.
        lr: α, a schedule t -> α_t over these steps, or `Measured()`.

    Example:
        >>> import torch, bilevel
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: (y**2).sum(), inner=lambda x, y: ((y - x) ** 2).sum(),
        ...     x0=torch.ones(1), y0=torch.zeros(1))
        >>> bilevel.solve_inner(problem, torch.ones(1), bilevel.inner.GradientDescent(3, 0.25)).y
        tensor([0.8750])

    Reference: the paper, Algorithm 1, line 5.
    """

    def plan(self, oracle: Oracle, x: Tensor, y: Tensor, streams: Streams) -> list[Step]:
        return [Step(None, lr) for lr in rates(self.lr, self.steps, oracle, x, y, streams)]


@dataclass(frozen=True)
class SGD(_Descent):
    """`steps` times y ← y − lr ∇y G(x, y; S_t), each on a fresh batch S_t.

    Args:
        steps: D.
        lr: α, a schedule t -> α_t over these steps, or `Measured()`.
        batch: S, the rows of a batch; None means all rows.

    Reference: the paper, Algorithm 2, lines 5 and 6.

    Example:
        >>> import torch, bilevel
        >>> from bilevel.problem.examples import means
        >>> solver = bilevel.inner.SGD(steps=200, lr=bilevel.schedules.decaying(0.5, 0.7), batch=5)
        >>> found = bilevel.solve_inner(problem := means(), problem.x0, solver)
        >>> exact = bilevel.solve_inner(problem, problem.x0)
        >>> bool((found.y - exact.y).norm() < 0.1)
        True
    """

    batch: BatchSize | None

    def plan(self, oracle: Oracle, x: Tensor, y: Tensor, streams: Streams) -> list[Step]:
        lrs = rates(self.lr, self.steps, oracle, x, y, streams)
        batches = streams.batches("inner", self.batch, self.steps)
        return [Step(rows, lr) for rows, lr in zip(batches, lrs, strict=True)]
