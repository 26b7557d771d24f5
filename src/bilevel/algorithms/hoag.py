"""HOAG: hyperparameter optimisation with approximate gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from bilevel.algorithms.double_loop import DoubleLoop
from bilevel.algorithms.registry import register
from bilevel.arguments import positive, positive_integer
from bilevel.hypergradients.aid import AID
from bilevel.hypergradients.base import Estimate
from bilevel.numerics.vectors import norm
from bilevel.oracles.base import Oracle
from bilevel.solvers.inner.base import InnerSolver
from bilevel.solvers.inner.lbfgs import LBFGS
from bilevel.solvers.linear.cg import CG, Preconditioner
from bilevel.solvers.updates.outer import Memory, OuterStep

Decrease = Literal["exponential", "quadratic", "cubic"]
_FLOOR = 1e-12


@register(
    "hoag",
    paper="Pedregosa, ICML 2016, Algorithm 1 (HOAG)",
    cost="Gc(f) 2, JV 1; Gc(g) and HV as the tolerance ε_k needs",
    demo={"tolerance": 0.1, "decrease": "exponential"},
)
@dataclass(frozen=True, kw_only=True)
class HOAG(DoubleLoop):
    """The inner problem by L-BFGS and the linear system by CG, each to a tolerance ε_k.

    Both are warm-started, and ε_k decreases: ε₀·0.9^k (exponential), ε₀/(k+1)² (quadratic) or
    ε₀/(k+1)³ (cubic). Unlike the author's public code it takes each step once and clips nothing.

    Args:
        tolerance: ε₀.
        decrease: how ε_k falls.
        cg_steps: the most CG steps.
        preconditioner: for CG, as in `bilevel.linear.CG`.
        inner: an inner solver of fixed accuracy, in place of L-BFGS to ε_k.
        outer_lr: None adapts it (see `AdaptiveStep`); a number or a schedule fixes it.
    """

    tolerance: float = 0.1
    decrease: Decrease = "exponential"
    cg_steps: int = 1000
    preconditioner: Preconditioner | None = None
    inner: InnerSolver | None = None

    def epsilon(self, k: int) -> float:
        """ε_k."""
        factors = {
            "exponential": 0.9**k,
            "quadratic": (k + 1.0) ** -2,
            "cubic": (k + 1.0) ** -3,
        }
        if self.decrease not in factors:
            raise ValueError(f"decrease must be one of {list(factors)}, got {self.decrease!r}")
        return max(positive("tolerance", self.tolerance) * factors[self.decrease], _FLOOR)

    def inner_solver(self, k: int) -> InnerSolver:
        return self.inner or LBFGS(tol=self.epsilon(k))  # step 1 of their Algorithm 1

    def differentiation(self, k: int) -> AID:
        steps = positive_integer("cg_steps", self.cg_steps)
        return AID(CG(steps, self.epsilon(k), self.preconditioner))  # steps 2 and 3

    def starts_v(self) -> bool:
        return True

    def own_outer(self, k: int) -> OuterStep:
        return AdaptiveStep(self.epsilon(k))  # step 4

    def cost(self, k: int) -> dict[str, int]:
        return {"gc_f": 2, "jv": 1}


@dataclass(frozen=True)
class AdaptiveStep(OuterStep):
    """x ← x − ∇Φ/L, where L is doubled when f rose too much and shrunk by 5 % when it fell.

    The first L is ‖∇Φ‖/√p. If f at the new point exceeds f at the last by more than the
    inexact solves explain, the last step is undone and L doubled. If it surely fell by at
    least what a step of size 1/L should give, L shrinks. An inner solution with gradient ∇y g
    leaves f wrong by v'∇y g to first order, and both values are doubted by so much.

    Reference: Pedregosa 2016, section "Adaptive step size".
    """

    epsilon: float

    def apply(
        self, oracle: Oracle, x: Tensor, estimate: Estimate, memory: Memory
    ) -> tuple[Tensor, Memory]:
        h, value = estimate.value, float(oracle.outer_value(x, estimate.inner.y))
        doubt = self._doubt(estimate)
        if not memory:
            L = norm(h) / x.numel() ** 0.5 or 1.0
            return self._move(x, h, value, doubt, L)
        L, before = memory["L"], memory["value"]
        either = memory["doubt"] + doubt + 10 * torch.finfo(x.dtype).eps * abs(before)
        expected = 0.5 * memory["slope"] * memory["length"]
        if value > before + either + self.epsilon * memory["length"]:
            undone = {**memory, "L": 2 * L, "length": memory["length"] / 2}
            step = memory["h"] / undone["L"]
            return memory["x"] - step, undone
        fell = value <= before - either - expected
        return self._move(x, h, value, doubt, 0.95 * L if fell else L)

    def _doubt(self, estimate: Estimate) -> float:
        """How far f(x, y) may be from Φ(x)."""
        known = estimate.inner.gradient_norm
        return norm(estimate.linear.v) * (self.epsilon if known is None else known)

    def _move(
        self, x: Tensor, h: Tensor, value: float, doubt: float, L: float
    ) -> tuple[Tensor, Memory]:
        slope = norm(h)
        sizes = {"L": L, "value": value, "doubt": doubt, "slope": slope, "length": slope / L}
        return x.sub(h, alpha=1 / L), {**sizes, "x": x, "h": h}
