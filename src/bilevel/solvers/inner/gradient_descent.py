"""Gradient descent on all rows."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bilevel.arguments import positive, positive_integer
from bilevel.oracles.base import Oracle, Step
from bilevel.problem.sampling import Streams
from bilevel.solvers.inner.base import GradientSteps


@dataclass(frozen=True)
class GradientDescent(GradientSteps):
    """`steps` times y ← y − lr ∇y g(x, y).

    With lr ≤ 1/L the distance to y*(x) shrinks by √(1 − lr·μ) a step at least.

    Args:
        steps: D.
        lr: α.

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
    lr: float

    def __post_init__(self) -> None:
        positive_integer("steps", self.steps)
        positive("lr", self.lr)

    def plan(self, oracle: Oracle, x: Tensor, y: Tensor, streams: Streams) -> list[Step]:
        return [Step(None, self.lr)] * self.steps
