"""Inner SGD and a randomly truncated series: what BSA, TTSA and ALSET share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from bilevel.algorithms.double_loop import DoubleLoop, Parts
from bilevel.arguments import Schedule
from bilevel.hypergradients.aid import AID
from bilevel.problem.sampling import BatchSizes
from bilevel.schedules import decaying
from bilevel.solvers.inner.gradient_descent import SGD
from bilevel.solvers.linear.random_truncation import RandomTruncation
from bilevel.solvers.updates.descent import Descent


@dataclass(frozen=True, kw_only=True)
class Truncated(DoubleLoop):
    """SGD on y, and one random term of the Neumann series that stands for all of it.

    Args:
        neumann_terms: Q.
        neumann_lr: η, at most 1/L.
        batch: one size for all roles, or sizes by role; single samples by default.
    """

    neumann_terms: int = 10
    neumann_lr: float = 0.1
    batch: int | Mapping[str, int | None] | BatchSizes | None = 1

    # How x moves unless told otherwise: such estimates are too noisy to measure the curvature of Φ.
    own: ClassVar[decaying] = decaying(0.1, power=0.5)

    def after(self, steps: int, lr: float | Schedule) -> Parts:
        """The parts of an outer step with so many inner ones, at this rate or schedule over t."""
        sizes = BatchSizes.of(self.batch)
        v = RandomTruncation(self.neumann_terms, self.neumann_lr, sizes.hessian)
        x = self.moves_x(Descent(self.own))
        return Parts(SGD(steps, lr, sizes.inner), AID(v, sizes), x)
