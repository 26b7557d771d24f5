"""AID-BiO: the paper's Algorithm 1 with approximate implicit differentiation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bilevel.algorithms.double_loop import DoubleLoop
from bilevel.algorithms.registry import register
from bilevel.arguments import Schedule, at
from bilevel.hypergradients.aid import AID
from bilevel.inner.base import InnerSolver
from bilevel.inner.safe_descent import descent
from bilevel.linear.cg import CG, Preconditioner
from bilevel.theory import plan_for


@register(
    "aid-bio",
    paper="Ji, Yang & Liang, ICML 2021, Algorithm 1 (AID)",
    cost="Gc(f) 2, Gc(g) D, JV 1, HV N (N + 1 from a warm-started v: its residual costs one)",
    demo={"inner_steps": 10, "inner_lr": 0.3, "cg_steps": 10, "outer_lr": 0.3},
)
@dataclass(frozen=True, kw_only=True)
class AIDBiO(DoubleLoop):
    """D gradient steps from the last y, N conjugate-gradient steps from the last v.

    With `inner_steps=bilevel.schedules.increasing(c)` it is the paper's AID-BiO-increasing.

    Args:
        inner_steps: D, or a schedule k -> D_k.
        inner_lr: α, at most 1/L; "auto" measures L at each outer step.
        cg_steps: N, at most.
        cg_tol: stop CG before N steps at this relative residual; 0 takes all of them.
        preconditioner: for CG, as in `bilevel.linear.CG`.
        inner: any solver of `bilevel.inner`, in place of `inner_steps` and `inner_lr`.

    Example:
        >>> import torch, bilevel
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: ((y - 1) ** 2).sum(),
        ...     inner=lambda x, y: ((y - 2 * x) ** 2).sum(),
        ...     x0=torch.zeros(2), y0=torch.zeros(2))
        >>> algorithm = bilevel.algorithms.AIDBiO(inner_steps=20, inner_lr=0.25, outer_lr=0.1)
        >>> bilevel.minimize(problem, algorithm, steps=50).x
        tensor([0.5000, 0.5000])
    """

    inner_steps: int | Schedule = 10
    inner_lr: float | str = 0.1
    cg_steps: int = 10
    cg_tol: float = 0.0
    preconditioner: Preconditioner | None = None
    inner: InnerSolver | None = None

    @classmethod
    def from_theory(cls, problem: Any, epsilon: float) -> AIDBiO:
        """The settings of Theorem 1 for a problem: safe, and slow. See `bilevel.theory.plan`."""
        return cls(**plan_for(problem, "aid-bio", epsilon).settings)

    def inner_solver(self, k: int) -> InnerSolver:
        return self.inner or descent(at(self.inner_steps, k), self.inner_lr)  # lines 4-6

    def differentiation(self, k: int) -> AID:
        return AID(CG(self.cg_steps, self.cg_tol, self.preconditioner))  # line 7, AID 2)-4)

    def starts_v(self) -> bool:
        return True  # line 7, AID 1)

    def cost(self, k: int) -> dict[str, int]:
        residual = 1 if self.warm_start and k > 0 else 0
        cost = {"gc_f": 2, "jv": 1}
        cost |= {} if self.cg_tol or self.inner_lr == "auto" else {"hv": self.cg_steps + residual}
        return cost if self.inner else {**cost, "gc_g": at(self.inner_steps, k)}
