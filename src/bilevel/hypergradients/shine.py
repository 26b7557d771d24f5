"""The inverse Hessian that the inner L-BFGS has learned, used again."""

from __future__ import annotations

from dataclasses import dataclass

from bilevel.hypergradients.base import Differentiation, Estimate, Stand
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import Cost
from bilevel.problem.sampling import Streams
from bilevel.solvers.inner.base import InnerSolver
from bilevel.solvers.inner.lbfgs import LBFGS
from bilevel.solvers.linear.base import LinearSolution, LinearSolver
from bilevel.solvers.linear.inner_hessian import InnerHessian
from bilevel.solvers.updates.quasi_newton import in_metric


@dataclass(frozen=True)
class SHINE(Differentiation):
    """∇x f − ∇x∇y g v with v = B ∇y f, where B ≈ (∇²y g)⁻¹ is that of the inner L-BFGS.

    The inner solve's pairs of differences give v by the two-loop recursion of L-BFGS, without a
    product. Its bias remains unless another solver continues from that v.

    Args:
        solver: continues from v, such as `bilevel.linear.CG(3)`; None takes v as it is.

    Example:
        >>> import torch, bilevel
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: (y**2).sum(), inner=lambda x, y: ((y - 3 * x) ** 2).sum(),
        ...     x0=torch.ones(1).double(), y0=torch.zeros(1).double())
        >>> found = bilevel.hypergradient(
        ...     problem, torch.ones(1).double(), torch.zeros(1).double(),
        ...     method=bilevel.hypergradients.SHINE(), inner=bilevel.inner.LBFGS(1e-8))
        >>> round(float(found.value), 4)
        18.0

    Reference: Ramzi, Mannel, Bai, Starck, Ciuciu & Moreau, "SHINE: sharing the inverse estimate
    from the forward pass", ICLR 2022; for bilevel problems also qNBO, ICLR 2025.
    """

    solver: LinearSolver | None = None

    takes = LBFGS
    refusal = (
        "SHINE uses what L-BFGS has learned of the Hessian, but {} "
        "learns nothing of it: use bilevel.inner.LBFGS(tol=1e-6)"
    )

    @property
    def samples(self) -> bool:
        return self.solver is not None and self.solver.samples

    def price(self, inner: InnerSolver, warm: bool) -> Cost:
        extra = Cost() if self.solver is None else self.solver.price(warm=True)
        return inner.price() + Cost(gc_f=2, jv=1) + extra

    def estimate(
        self, oracle: Oracle, stand: Stand, inner: InnerSolver, streams: Streams
    ) -> Estimate:
        self.check(inner)
        found = stand.solve(inner, oracle, streams)
        f_x, f_y = oracle.outer(stand.x, found.y).gradient()
        hessian = InnerHessian(oracle, stand.x, found.y, streams)
        if found.pairs is None or not len(found.pairs[0]):  # no step was taken: reuse the last v
            v, known = (f_y if stand.v is None else stand.v.clone()), 0
        else:
            v, known = in_metric(*found.pairs, f_y), len(found.pairs[0])
        linear = (
            LinearSolution(v, steps=known)
            if self.solver is None
            else self.solver.solve(hessian, f_y, v)
        )
        covector = f_x - hessian.cross(linear.v, None)
        return Estimate(oracle.pull(stand.x, covector), found, linear)
