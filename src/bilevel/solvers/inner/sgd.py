"""Stochastic gradient descent."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bilevel.arguments import Schedule, at, positive, positive_integer
from bilevel.oracles.base import Oracle, Step
from bilevel.problem.sampling import Streams
from bilevel.solvers.inner.base import GradientSteps


@dataclass(frozen=True)
class SGD(GradientSteps):
    """`steps` times y ← y − lr ∇y G(x, y; S_t), each on a fresh batch S_t.

    Args:
        steps: D.
        lr: α, or a schedule t -> α_t over these steps.
        batch: S, the rows of a batch; None is all rows.

    Reference: the paper, Algorithm 2, lines 5 and 6.
    """

    steps: int
    lr: float | Schedule
    batch: int | None

    def __post_init__(self) -> None:
        positive_integer("steps", self.steps)
        positive("lr", at(self.lr, 0))
        if self.batch is not None:
            positive_integer("batch", self.batch)

    def plan(self, oracle: Oracle, x: Tensor, y: Tensor, streams: Streams) -> list[Step]:
        batches = streams.batches("inner", self.batch, self.steps)
        return [Step(rows, at(self.lr, t)) for t, rows in enumerate(batches)]
