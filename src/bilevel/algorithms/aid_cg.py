"""AID-CG: implicit differentiation with conjugate gradients from zero."""

from __future__ import annotations

from dataclasses import dataclass

from bilevel.algorithms.double_loop import DoubleLoop
from bilevel.algorithms.registry import register
from bilevel.arguments import Schedule, at
from bilevel.hypergradients.aid import AID
from bilevel.solvers.inner.base import InnerSolver
from bilevel.solvers.inner.gradient_descent import GradientDescent
from bilevel.solvers.linear.cg import CG, Preconditioner


@register(
    "aid-cg",
    paper="Grazzi, Franceschi, Pontil & Salzo, ICML 2020, Algorithm 2 (conjugate gradient)",
    cost="Gc(f) 2, Gc(g) D, JV 1, HV N",
    demo={"inner_steps": 10, "inner_lr": 0.3, "cg_steps": 10, "outer_lr": 0.3},
)
@dataclass(frozen=True, kw_only=True)
class AIDCG(DoubleLoop):
    """D gradient steps from the last y, N conjugate-gradient steps from zero.

    What AID-BiO adds to it is the warm start of v.

    Args:
        inner_steps: D, or a schedule k -> D_k.
        inner_lr: α, at most 1/L.
        cg_steps: N, at most.
        cg_tol: stop CG before N steps at this relative residual; 0 takes all of them.
        preconditioner: for CG, as in `bilevel.linear.CG`.
        inner: any solver of `bilevel.inner`, in place of `inner_steps` and `inner_lr`.
    """

    inner_steps: int | Schedule = 10
    inner_lr: float = 0.1
    cg_steps: int = 10
    cg_tol: float = 0.0
    preconditioner: Preconditioner | None = None
    inner: InnerSolver | None = None

    def inner_solver(self, k: int) -> InnerSolver:
        return self.inner or GradientDescent(at(self.inner_steps, k), self.inner_lr)

    def differentiation(self, k: int) -> AID:
        return AID(CG(self.cg_steps, self.cg_tol, self.preconditioner))

    def cost(self, k: int) -> dict[str, int]:
        cost = {"gc_f": 2, "jv": 1}
        cost |= {} if self.cg_tol else {"hv": self.cg_steps}
        return cost if self.inner else {**cost, "gc_g": at(self.inner_steps, k)}
