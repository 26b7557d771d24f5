"""Any hypergradient, with differences of gradients in place of second derivatives."""

from __future__ import annotations

from dataclasses import dataclass, field

from bilevel.hypergradients.aid import AID
from bilevel.hypergradients.base import Differentiation, Estimate, Stand
from bilevel.oracles.differences import Differenced
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import Cost
from bilevel.problem.sampling import Streams
from bilevel.solvers.inner.base import InnerSolver


@dataclass(frozen=True)
class FiniteDifferences(Differentiation):
    """∇²y g v ≈ (∇y g(y + εv) − ∇y g(y − εv))/2ε and ∇x∇y g v likewise, inside another method.

    For inner losses that can be differentiated only once, such as those with fused kernels. With
    `AID(bilevel.linear.Identity(ξ))` it is the estimate of DARTS: three gradients, no product. Both
    sides of a difference use the same rows and draws. What a loss detaches still moves with y:
    differences see its slope, whereas exact products do not.

    Args:
        method: what asks for the products, such as `bilevel.AID(bilevel.linear.CG(10))`.

    Example:
        >>> import torch, bilevel
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: (y**2).sum(), inner=lambda x, y: ((y - 3 * x) ** 2).sum(),
        ...     x0=torch.ones(1).double(), y0=torch.zeros(1).double())
        >>> method = bilevel.hypergradients.FiniteDifferences(bilevel.AID(bilevel.linear.CG(5)))
        >>> found = bilevel.hypergradient(
        ...     problem, torch.ones(1).double(), torch.tensor([3.0]).double(), method=method,
        ...     inner=bilevel.inner.LBFGS(1e-9))
        >>> round(float(found.value), 6)
        18.0

    Reference: Liu, Simonyan & Yang, "DARTS: differentiable architecture search", ICLR 2019, (8).
    """

    method: Differentiation = field(default_factory=AID)

    @property
    def samples(self) -> bool:
        return self.method.samples

    def check(self, inner: InnerSolver) -> None:
        self.method.check(inner)

    def price(self, inner: InnerSolver, warm: bool) -> Cost:
        # Each product becomes two gradients, of y or of x.
        cost = self.method.price(inner, warm)
        products = None if cost.hv is None or cost.jv is None else 2 * (cost.hv + cost.jv)
        return Cost(gc_f=cost.gc_f, gc_g=cost.gc_g) + Cost(gc_g=products)

    def estimate(
        self, oracle: Oracle, stand: Stand, inner: InnerSolver, streams: Streams
    ) -> Estimate:
        return self.method.estimate(Differenced(oracle), stand, inner, streams)
