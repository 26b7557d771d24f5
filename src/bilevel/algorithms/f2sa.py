"""F2SA: a value-function method, with first derivatives only."""

from __future__ import annotations

from dataclasses import dataclass

from bilevel.algorithms.double_loop import DoubleLoop, Parts
from bilevel.algorithms.registry import register
from bilevel.arguments import Schedule, at
from bilevel.hypergradients.value_function import ValueFunction
from bilevel.solvers.inner.gradient_descent import SGD
from bilevel.solvers.updates.descent import Descent


@register(
    "f2sa",
    paper="Kwon, Kwon, Wright & Nowak, ICML 2023 (F2SA)",
    cost="Gc(f) 2T + 2, Gc(g) 2T + 2 (two of them ∇x g), JV 0, HV 0",
    demo={"multiplier": 20.0, "inner_lr": 0.3, "outer_lr": 0.1, "inner_steps": 5, "batch": 16},
    steps=200,
    bias="O(1/λ)",
)
@dataclass(frozen=True, kw_only=True)
class F2SA(DoubleLoop):
    """min f(x, p) + λ (g(x, p) − min_y g(x, y)): no Hessian anywhere.

        T times:  y ← y − α ∇y g(x, y; S),  p ← p − α (∇y g(x, p; S) + ∇y f(x, p; R)/λ);
        x ← x − γ (∇x f(x, p; R) + λ (∇x g(x, p; S) − ∇x g(x, y; S)))

    The paper's y is p here, and its z is y, the inner solution. p's step is divided by λ, so that
    one α serves both. See `bilevel.ValueFunction`.

    Args:
        multiplier: λ, or a schedule k -> λ_k.
        inner_lr: α, at most 1/L; or a schedule over the T steps.
        outer_lr: γ, or a schedule; by default 0.1.
        inner_steps: T.
        batch: |S| = |R|; None is all rows.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> algorithm = bilevel.algorithms.F2SA(
        ...     multiplier=100.0, inner_lr=0.25, outer_lr=0.05, inner_steps=10, batch=None)
        >>> bilevel.minimize(halves(), algorithm, steps=300).x
        tensor([0.5000, 0.5000])
    """

    multiplier: float | Schedule = 10.0
    inner_lr: float | Schedule = 0.1
    inner_steps: int = 10
    batch: int | None = 64

    steady = True

    def parts(self, k: int) -> Parts:
        inner = SGD(self.inner_steps, self.inner_lr, self.batch)
        value = ValueFunction(at(self.multiplier, k), self.batch)
        # The v of a step is λ (y − p); the next step's p starts from y − v/λ.
        return Parts(inner, value, self.moves_x(Descent(0.1)), warm_v=True)
