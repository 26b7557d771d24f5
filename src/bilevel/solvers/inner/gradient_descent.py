"""Gradient descent on all rows."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bilevel.arguments import positive_integer
from bilevel.oracles.plans import Step
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import Cost
from bilevel.problem.sampling import Streams
from bilevel.solvers.inner.base import GradientSteps
from bilevel.solvers.measured import Measured, Rate, check_rate, rates


@dataclass(frozen=True)
class GradientDescent(GradientSteps):
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

    steps: int
    lr: Rate

    def __post_init__(self) -> None:
        positive_integer("steps", self.steps)
        check_rate("lr", self.lr)

    def plan(self, oracle: Oracle, x: Tensor, y: Tensor, streams: Streams) -> list[Step]:
        if isinstance(self.lr, float):  # no schedule, nothing to measure
            return [Step(None, self.lr)] * self.steps
        return [Step(None, lr) for lr in rates(self.lr, self.steps, oracle, x, y, streams)]

    def price(self) -> Cost:
        return Cost(gc_g=self.steps, hv=None if isinstance(self.lr, Measured) else 0)
