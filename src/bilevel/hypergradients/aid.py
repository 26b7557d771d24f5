"""Approximate implicit differentiation."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from bilevel.arguments import instance
from bilevel.hypergradients.base import Differentiation, Estimate
from bilevel.oracles.base import Batched, Oracle, Series
from bilevel.problem.sampling import BatchSizes, Streams
from bilevel.solvers.inner.base import GradientSteps, InnerSolution, InnerSolver, InnerStatus
from bilevel.solvers.linear.base import LinearSolver, SeriesSolver, solution
from bilevel.solvers.linear.cg import CG
from bilevel.solvers.linear.inner_hessian import InnerHessian


@dataclass(frozen=True)
class AID(Differentiation):
    """∇Φ(x) ≈ ∇x f(x, y) − ∇x∇y g(x, y) v with ∇²y g(x, y) v ≈ ∇y f(x, y).

    Args:
        solver: how v is found: any solver of `bilevel.linear`.
        batch: rows of the outer gradient (role outer) and of the cross product (role cross);
            by default all. The rows of the Hessians are the solver's own matter.

    Example:
        >>> import torch, bilevel
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: (y**2).sum(), inner=lambda x, y: ((y - 3 * x) ** 2).sum(),
        ...     x0=torch.ones(1), y0=torch.zeros(1))
        >>> method = bilevel.AID(bilevel.linear.CG(steps=20, tol=1e-10))
        >>> bilevel.hypergradient(problem, torch.ones(1), torch.tensor([3.0]), method=method).value
        tensor([18.])

    Reference: the paper, Proposition 1 and Algorithm 1 (AID); for batches, Algorithm 2,
    lines 8 to 12.
    """

    solver: LinearSolver = field(default_factory=CG)
    batch: BatchSizes = field(default_factory=BatchSizes)

    def __post_init__(self) -> None:
        instance("solver", self.solver, LinearSolver, "bilevel.linear.CG(steps=20)")
        instance("batch", self.batch, BatchSizes, "bilevel.BatchSizes(outer=8, cross=8)")

    def estimate(
        self,
        oracle: Oracle,
        x: Tensor,
        y: Tensor,
        v: Tensor | None,
        inner: InnerSolver,
        streams: Streams,
    ) -> Estimate:
        if isinstance(inner, GradientSteps) and (series := self._series(streams)) is not None:
            return self._by_batches(oracle, x, y, inner, series, streams)
        return self.at(oracle, x, inner.solve(oracle, x, y, streams), v, streams)

    def _by_batches(
        self,
        oracle: Oracle,
        x: Tensor,
        y: Tensor,
        inner: GradientSteps,
        series: Series,
        streams: Streams,
    ) -> Estimate:
        """All batches are drawn before: the oracle is asked once."""
        drawn = Batched(
            inner.plan(oracle, x, y, streams),
            streams.rows("outer", self.batch.outer),
            series,
            streams.rows("cross", self.batch.cross),
        )
        found = oracle.implicit(x, y, drawn)
        return Estimate(
            oracle.pull(x, found.covector),
            InnerSolution(found.y, InnerStatus.STEP_LIMIT, len(drawn.steps)),
            solution(found.v, len(series.batches)),
        )

    def _series(self, streams: Streams) -> Series | None:
        """None if the solver is no series, or one on all rows, which share a linearisation."""
        if not isinstance(self.solver, SeriesSolver) or self.solver.batch is None:
            return None
        if streams.available("hessian") is None:
            return None
        plan = self.solver.plan(streams)
        batches = streams.of_sizes("hessian", plan.sizes)
        return Series(batches, plan.lr, plan.scale, plan.summed)

    def at(
        self, oracle: Oracle, x: Tensor, inner: InnerSolution, v: Tensor | None, streams: Streams
    ) -> Estimate:
        """Take the inner solution as it is."""
        rows = streams.rows("outer", self.batch.outer)
        outer_x, outer_y = oracle.outer_gradient(x, inner.y, rows)
        hessian = InnerHessian(oracle, x, inner.y, streams)
        linear = self.solver.solve(hessian, outer_y, v)
        covector = outer_x - hessian.cross(linear.v, self.batch.cross)
        return Estimate(oracle.pull(x, covector), inner, linear)
