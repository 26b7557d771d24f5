"""Inner steps on g + w f, for several weights w and on the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from bilevel.hypergradients.base import Stand
from bilevel.oracles.plans import Descend, Step, do
from bilevel.oracles.points import Oracle
from bilevel.problem.sampling import Streams
from bilevel.problem.sources import Rows
from bilevel.solvers.inner.base import GradientSteps, InnerSolver
from bilevel.solvers.inner.steps import Steps
from bilevel.solvers.updates.base import Look, Update
from bilevel.solvers.updates.descent import Descent


@dataclass(frozen=True)
class Tilted:
    """The steps of an inner solver, to be taken on g tilted by f.

    The argmin y_w of g(x, ·) + w f(x, ·) moves away from y*(x) by −w (∇²y g)⁻¹ ∇y f to first order:
    this is how first-order methods see second derivatives. All weights use the same rows, since
    the noise of a difference would otherwise be 1/w times as large.

    Args:
        x: the outer variable.
        steps: rows and rates of the inner solver's plain gradient steps; for other updates, rows.
        outer: rows of f for each step, and one more batch.
        update: what moves y.
    """

    x: Tensor
    steps: Sequence[Step]
    outer: Sequence[Rows]
    update: Update | None = None

    @staticmethod
    def of(
        inner: InnerSolver, oracle: Oracle, stand: Stand, streams: Streams, batch: int | None
    ) -> Tilted:
        """Draw all rows; `batch` is the number of rows of f."""
        update = None
        if isinstance(inner, GradientSteps):
            steps = inner.plan(oracle, stand.x, stand.y, streams)
        # With kept moments, the copies for other weights would go on from those of g.
        elif isinstance(inner, Steps) and not inner.keep:
            rows = streams.batches("inner", inner.batch, inner.steps)
            steps, update = [Step(r, 1.0) for r in rows], inner.update
        else:
            raise ValueError(
                "first-order hypergradients take the inner solver's gradient steps on g and on "
                f"g + w f, but {type(inner).__name__} is not made of them: use GradientDescent, "
                "SGD, or Steps with keep=False"
            )
        outer = streams.batches("outer", batch, len(steps) + 1)
        return Tilted(stand.x, steps, outer, update)

    @property
    def last(self) -> tuple[Rows, Rows]:
        """The rows of g and of f for the derivatives in x, also shared by all weights."""
        return self.steps[-1].rows, self.outer[-1]

    def solve(self, oracle: Oracle, y: Tensor, weight: float) -> Tensor:
        """y after the steps on g + weight · f."""
        # Plain steps on g alone are a plan, which a model may take in one go.
        if weight == 0 and self.update is None:
            return do(Descend(self.x, y, self.steps), oracle)
        memory = self.update.init(y) if self.update else {}
        for t, ((rows, lr), rows_f) in enumerate(zip(self.steps, self.outer, strict=False)):
            d = oracle.inner(self.x, y, rows).gradient()
            if weight:
                d = d.add(oracle.outer(self.x, y, rows_f).gradient()[1], alpha=weight)
            y, memory = (self.update or Descent(lr)).apply(y, d, memory, Look(t))
        return y
