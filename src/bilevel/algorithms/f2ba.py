"""F2BA: the fully first-order method on all rows."""

from __future__ import annotations

from dataclasses import dataclass

from bilevel.algorithms.double_loop import DoubleLoop, Parts
from bilevel.algorithms.registry import register
from bilevel.arguments import Schedule, at
from bilevel.hypergradients.value_function import ValueFunction
from bilevel.solvers.inner.gradient_descent import GradientDescent
from bilevel.solvers.measured import Measured
from bilevel.solvers.updates.descent import Descent

_SAFE = Measured()


@register(
    "f2ba",
    paper="Chen, Ma & Zhang, 2023, Algorithm 1 (F2BA)",
    cost="Gc(f) 2T + 2, Gc(g) 2T + 2 (two of them ∇x g), JV 0, HV 0",
    demo={"multiplier": 50.0, "inner_lr": 0.3, "outer_lr": 0.2, "inner_steps": 8},
    bias="O(1/λ)",
)
@dataclass(frozen=True, kw_only=True)
class F2BA(DoubleLoop):
    """F2SA without noise: a large λ, and T steps that solve both problems well.

        T times:  y ← y − α ∇y g(x, y),  p ← p − α (∇y g(x, p) + ∇y f(x, p)/λ);
        x ← x − γ (∇x f(x, p) + λ (∇x g(x, p) − ∇x g(x, y)))

    The paper's y is p here, and its z is y. It starts z from its y in each outer step; here each
    continues from where it was, which has the same limit and is nearer to it.

    Args:
        multiplier: λ, of the order 1/ε for ‖∇Φ‖ ≤ ε; or a schedule k -> λ_k.
        inner_lr: α; by default 1/L is measured at each outer step.
        outer_lr: γ, or a schedule; by default 0.1.
        inner_steps: T, or a schedule k -> T_k.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> algorithm = bilevel.algorithms.F2BA(inner_lr=0.25, outer_lr=0.05)
        >>> bilevel.minimize(halves(), algorithm, steps=300).x
        tensor([0.5000, 0.5000])
    """

    multiplier: float | Schedule = 100.0
    inner_lr: float | Measured = _SAFE
    inner_steps: int | Schedule = 10

    steady = True

    def parts(self, k: int) -> Parts:
        inner = GradientDescent(at(self.inner_steps, k), self.inner_lr)
        value = ValueFunction(at(self.multiplier, k))
        return Parts(inner, value, self.moves_x(Descent(0.1)), warm_v=True)
