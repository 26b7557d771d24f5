"""AID-FP: implicit differentiation with the fixed-point iteration."""

from __future__ import annotations

from dataclasses import dataclass

from bilevel.algorithms.double_loop import DoubleLoop, Parts
from bilevel.algorithms.registry import register
from bilevel.arguments import Schedule, at
from bilevel.hypergradients.aid import AID
from bilevel.solvers.inner.base import InnerSolver
from bilevel.solvers.inner.gradient_descent import GradientDescent
from bilevel.solvers.linear.fixed_point import FixedPoint


@register(
    "aid-fp",
    paper="Grazzi, Franceschi, Pontil & Salzo, ICML 2020, Algorithm 2 (fixed point)",
    cost="Gc(f) 2, Gc(g) D, JV 1, HV N - 1 (the first step from zero needs none)",
    demo={"inner_steps": 10, "inner_lr": 0.3, "cg_steps": 20, "outer_lr": 0.3},
)
@dataclass(frozen=True, kw_only=True)
class AIDFP(DoubleLoop):
    """D gradient steps from the last y, N fixed-point steps v ← v − α(Hv − ∇y f) from zero.

    Args:
        inner_steps: D, or a schedule k -> D_k.
        inner_lr: α, at most 1/L.
        cg_steps: N, the fixed-point steps; named as in the other AID methods, to swap them easily.
        fixed_point_lr: the step of the fixed-point iteration; None is `inner_lr`, as in
            the paper by Grazzi et al., where one map serves both loops.
        inner: any solver of `bilevel.inner`, in place of `inner_steps` and `inner_lr`.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> algorithm = bilevel.algorithms.AIDFP(inner_steps=20, inner_lr=0.25, outer_lr=0.1)
        >>> bilevel.minimize(halves(), algorithm, steps=50).x
        tensor([0.5000, 0.5000])
    """

    inner_steps: int | Schedule = 10
    inner_lr: float = 0.1
    cg_steps: int = 10
    fixed_point_lr: float | None = None
    inner: InnerSolver | None = None

    steady = True

    def parts(self, k: int) -> Parts:
        inner = self.inner or GradientDescent(at(self.inner_steps, k), self.inner_lr)
        # y ↦ y − α ∇y g has the derivative I − αH: with the same α, the iteration for v is made of
        # the transposed derivative of that for y.
        lr = self.inner_lr if self.fixed_point_lr is None else self.fixed_point_lr
        return Parts(inner, AID(FixedPoint(self.cg_steps, lr)), self.moves_x())
