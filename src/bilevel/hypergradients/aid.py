"""Approximate implicit differentiation."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from bilevel.arguments import instance
from bilevel.hypergradients.base import Differentiation, Estimate, Stand
from bilevel.oracles.plans import Implicit, Series, do
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import Cost
from bilevel.problem.sampling import BatchSizes, Streams
from bilevel.solvers.inner.base import GradientSteps, InnerSolution, InnerSolver
from bilevel.solvers.linear.base import LinearSolution, LinearSolver, SeriesSolver
from bilevel.solvers.linear.cg import CG
from bilevel.solvers.linear.inner_hessian import InnerHessian


@dataclass(frozen=True)
class AID(Differentiation):
    """∇Φ(x) ≈ ∇x f(x, y) − ∇x∇y g(x, y) v with ∇²y g(x, y) v ≈ ∇y f(x, y).

    Args:
        solver: how v is found: any solver of `bilevel.linear`.
        batch: rows of the outer gradient (role outer) and of the cross product (role cross);
            by default all. The solver chooses the rows of the Hessians.

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
        super().__post_init__()
        instance("batch", self.batch, BatchSizes, "bilevel.BatchSizes(outer=8, cross=8)")

    @property
    def samples(self) -> bool:
        return self.solver.samples or self.batch.samples_outside

    def price(self, inner: InnerSolver, warm: bool) -> Cost:
        return inner.price() + self.solver.price(warm) + Cost(gc_f=2, jv=1)

    def estimate(
        self, oracle: Oracle, stand: Stand, inner: InnerSolver, streams: Streams
    ) -> Estimate:
        # If all batches can be drawn beforehand (Algorithm 2, lines 5 and 8), the whole estimate is
        # one plan, which an oracle may carry out without returning to Python between the steps.
        if isinstance(inner, GradientSteps) and isinstance(self.solver, SeriesSolver):
            series = self._series(self.solver, oracle, stand, streams)
            if series is not None:
                steps = inner.plan(oracle, stand.x, stand.y, streams)
                outer = streams.rows("outer", self.batch.outer)
                cross = streams.rows("cross", self.batch.cross)
                found = do(Implicit(stand.x, stand.y, steps, outer, series, cross), oracle)
                return Estimate(
                    oracle.pull(stand.x, found.covector),
                    InnerSolution(found.y, steps=len(steps)),
                    LinearSolution(found.v, steps=len(series.batches)),
                )
        return self.at(oracle, stand.x, stand.solve(inner, oracle, streams), stand.v, streams)

    def _series(
        self, solver: SeriesSolver, oracle: Oracle, stand: Stand, streams: Streams
    ) -> Series | None:
        """The series; None for one on all rows, whose products share a linearisation."""
        if streams.available("hessian") is None or streams.size("hessian", solver.batch) is None:
            return None
        plan = solver.plan(streams, lambda m: m.at(oracle, stand.x, stand.y, streams))
        batches = streams.of_sizes("hessian", plan.sizes)
        return Series(batches, plan.lr, plan.scale, plan.summed)

    def at(
        self, oracle: Oracle, x: Tensor, inner: InnerSolution, v: Tensor | None, streams: Streams
    ) -> Estimate:
        """Take the inner solution as it is."""
        # Algorithm 2, line 9, or on all rows the right-hand side of Algorithm 1, line 7, AID, 2).
        rows = streams.rows("outer", self.batch.outer)
        outer_x, outer_y = oracle.outer(x, inner.y, rows).gradient()
        hessian = InnerHessian(oracle, x, inner.y, streams)
        # From v if the loop is warm-started, else from zero.
        linear = self.solver.solve(hessian, outer_y, v)
        # Proposition 1, with the y and v that were found in place of y* and v*.
        covector = outer_x - hessian.cross(linear.v, self.batch.cross)
        return Estimate(oracle.pull(x, covector), inner, linear)
