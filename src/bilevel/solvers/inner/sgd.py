"""Stochastic gradient descent."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bilevel.arguments import batch_size, optional, positive_integer
from bilevel.oracles.plans import Step
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import Cost
from bilevel.problem.sampling import Streams
from bilevel.solvers.inner.base import GradientSteps
from bilevel.solvers.measured import Measured, Rate, check_rate, rates


@dataclass(frozen=True)
class SGD(GradientSteps):
    """`steps` times y ← y − lr ∇y G(x, y; S_t), each on a fresh batch S_t.

    Args:
        steps: D.
        lr: α, a schedule t -> α_t over these steps, or `Measured()`.
        batch: S, the rows of a batch; None means all rows.

    Reference: the paper, Algorithm 2, lines 5 and 6.
    """

    steps: int
    lr: Rate
    batch: int | None

    def __post_init__(self) -> None:
        positive_integer("steps", self.steps)
        check_rate("lr", self.lr)
        optional(batch_size, "batch", self.batch)

    @property
    def samples(self) -> bool:
        return self.batch is not None

    def plan(self, oracle: Oracle, x: Tensor, y: Tensor, streams: Streams) -> list[Step]:
        lrs = rates(self.lr, self.steps, oracle, x, y, streams)
        batches = streams.batches("inner", self.batch, self.steps)
        return [Step(rows, lr) for rows, lr in zip(batches, lrs, strict=True)]

    def price(self) -> Cost:
        return Cost(gc_g=self.steps, hv=None if isinstance(self.lr, Measured) else 0)
