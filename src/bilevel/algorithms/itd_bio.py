"""ITD-BiO: the paper's Algorithm 1 with iterative differentiation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bilevel.algorithms.double_loop import DoubleLoop
from bilevel.algorithms.registry import register
from bilevel.arguments import AUTO, Schedule, at
from bilevel.hypergradients.itd import ITD
from bilevel.solvers.inner.base import GradientSteps
from bilevel.solvers.inner.safe_descent import descent
from bilevel.theory import plan_for


@register(
    "itd-bio",
    paper="Ji, Yang & Liang, ICML 2021, Algorithm 1 (ITD)",
    cost="Gc(f) 2, Gc(g) D, JV D, HV D - 1",
    demo={"inner_steps": 20, "inner_lr": 0.3, "outer_lr": 0.3},
)
@dataclass(frozen=True, kw_only=True)
class ITDBiO(DoubleLoop):
    """D gradient steps from the last y, and the gradient of f(x, y^D(x)) through them.

    Args:
        inner_steps: D, or a schedule k -> D_k.
        inner_lr: α, at most 1/L; "auto" measures L at each outer step.
        truncate: differentiate only the last so many steps; 0 is first-order ITD-BiO, which
            takes ∇x f for the hypergradient. None is all of them.

    Example:
        >>> import torch, bilevel
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: ((y - 1) ** 2).sum(),
        ...     inner=lambda x, y: ((y - 2 * x) ** 2).sum(),
        ...     x0=torch.zeros(2), y0=torch.zeros(2))
        >>> algorithm = bilevel.algorithms.ITDBiO(inner_steps=20, inner_lr=0.25, outer_lr=0.1)
        >>> bilevel.minimize(problem, algorithm, steps=50).x
        tensor([0.5000, 0.5000])
    """

    inner_steps: int | Schedule = 10
    inner_lr: float | str = AUTO
    truncate: int | None = None

    @classmethod
    def from_theory(cls, problem: Any, epsilon: float) -> ITDBiO:
        """The settings of Theorem 2 for a problem: safe, and slow. See `bilevel.theory.plan`."""
        return cls(**plan_for(problem, "itd-bio", epsilon).settings)

    def inner_solver(self, k: int) -> GradientSteps:
        return descent(at(self.inner_steps, k), self.inner_lr)  # lines 4 to 6

    def differentiation(self, k: int) -> ITD:
        return ITD(truncate=self.truncate)  # line 7, ITD

    def cost(self, k: int) -> dict[str, int]:
        D = at(self.inner_steps, k)
        T = D if self.truncate is None else min(D, self.truncate)
        cost = {"gc_f": 2, "gc_g": D, "jv": T}
        return cost if self.inner_lr == AUTO else {**cost, "hv": max(0, T - 1)}
