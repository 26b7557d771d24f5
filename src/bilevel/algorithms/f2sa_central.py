"""F2SA-p: F2SA with a central difference in place of the forward one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bilevel.algorithms.contract import Algorithm
from bilevel.algorithms.double_loop import DoubleLoop, Parts
from bilevel.algorithms.registry import register
from bilevel.arguments import Schedule, at
from bilevel.hypergradients.central_value import CentralValue
from bilevel.solvers.inner.gradient_descent import SGD
from bilevel.solvers.updates.descent import Descent


@register(
    "f2sa-central",
    paper="Chen, Li, Chayti & Zhang, ICLR 2026 (F2SA-p)",
    cost="Gc(f) 2p(T + 1), Gc(g) p(T + 1) (p of them ∇x g), JV 0, HV 0",
    demo={"nu": 0.1, "inner_lr": 0.3, "outer_lr": 0.1, "inner_steps": 5, "batch": 16},
    bias="O(ν^p)",
)
@dataclass(frozen=True, kw_only=True)
class F2SACentral(DoubleLoop):
    """No Hessian anywhere, and a bias of ν^p instead of F2SA's 1/λ = ν.

        for w = ±ν, ..., ±(p/2)ν, T times:  y_w ← y_w − α (∇y g(x, y_w; S) + w ∇y f(x, y_w; R));
        x ← x − γ Σ_j c_j (∇x ℓ_{jν} − ∇x ℓ_{−jν})/ν,   ∇x ℓ_w = ∇x g(x, y_w; S) + w ∇x f(x, y_w; R)

    See `bilevel.hypergradients.CentralValue`. Their code also divides x's step by the norm of its
    direction; here that is left to the update.

    Args:
        nu: ν, or a schedule k -> ν_k; g + wf must be convex for |w| ≤ pν/2.
        order: p, even.
        inner_lr: α, at most 1/L; or a schedule over the T steps.
        outer_lr: γ, or a schedule; by default 0.1.
        inner_steps: T.
        batch: |S| = |R|; None is all rows.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> algorithm = bilevel.algorithms.F2SACentral(
        ...     inner_lr=0.25, outer_lr=0.05, inner_steps=10, batch=None)
        >>> bilevel.minimize(halves(), algorithm, steps=300).x
        tensor([0.5000, 0.5000])
    """

    nu: float | Schedule = 0.1
    order: int = 2
    inner_lr: float | Schedule = 0.1
    inner_steps: int = 10
    batch: int | None = 64

    steady = True

    def sized(self, sizes: Mapping[str, Any]) -> Algorithm | None:
        # A forward difference with ν is a value function with λ = 1/ν.
        more = {"nu": 1 / sizes["multiplier"]} if "multiplier" in sizes else {}
        return super().sized({**sizes, **more})

    def parts(self, k: int) -> Parts:
        inner = SGD(self.inner_steps, self.inner_lr, self.batch)
        central = CentralValue(at(self.nu, k), self.order, self.batch)
        return Parts(inner, central, self.moves_x(Descent(0.1)), warm_v=True)
