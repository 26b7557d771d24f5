"""AID-CG: implicit differentiation with conjugate gradients from zero."""

from __future__ import annotations

from dataclasses import dataclass

from bilevel.algorithms.double_loop import DoubleLoop, Parts
from bilevel.algorithms.registry import register
from bilevel.arguments import Schedule, at
from bilevel.hypergradients.aid import AID
from bilevel.solvers.inner.base import InnerSolver
from bilevel.solvers.inner.gradient_descent import GradientDescent
from bilevel.solvers.linear.cg import CG, Preconditioner
from bilevel.solvers.measured import Measured


@register(
    "aid-cg",
    paper="Grazzi, Franceschi, Pontil & Salzo, ICML 2020, Algorithm 2 (conjugate gradient)",
    cost="Gc(f) 2, Gc(g) D, JV 1, HV N",
    demo={"inner_steps": 10, "inner_lr": 0.3, "cg_steps": 10, "outer_lr": 0.3},
)
@dataclass(frozen=True, kw_only=True)
class AIDCG(DoubleLoop):
    """D gradient steps from the last y, N conjugate-gradient steps from zero.

    AID-BiO adds to it the warm start of v.

    Args:
        inner_steps: D, or a schedule k -> D_k.
        inner_lr: α, at most 1/L, or `Measured()`.
        cg_steps: at most N.
        cg_tol: stop CG before N steps at this relative residual; 0 takes all of them.
        preconditioner: for CG, as in `bilevel.linear.CG`.
        inner: any solver of `bilevel.inner`, in place of `inner_steps` and `inner_lr`.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> algorithm = bilevel.algorithms.AIDCG(inner_steps=20, inner_lr=0.25, outer_lr=0.1)
        >>> bilevel.minimize(halves(), algorithm, steps=50).x
        tensor([0.5000, 0.5000])
    """

    inner_steps: int | Schedule = 10
    inner_lr: float | Measured = 0.1
    cg_steps: int = 10
    cg_tol: float = 0.0
    preconditioner: Preconditioner | None = None
    inner: InnerSolver | None = None

    steady = True

    def parts(self, k: int) -> Parts:
        inner = self.inner or GradientDescent(at(self.inner_steps, k), self.inner_lr)
        # Without `warm_v`, every system is solved from zero.
        v = AID(CG(self.cg_steps, self.cg_tol, self.preconditioner))
        return Parts(inner, v, self.moves_x())
