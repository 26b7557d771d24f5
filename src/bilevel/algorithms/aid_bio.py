"""AID-BiO: the paper's Algorithm 1 with approximate implicit differentiation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from bilevel.algorithms.double_loop import DoubleLoop
from bilevel.algorithms.registry import register
from bilevel.algorithms.state import State
from bilevel.arguments import AUTO, Schedule, at, non_negative, positive
from bilevel.hypergradients.accurate import AccurateAID
from bilevel.hypergradients.aid import AID
from bilevel.hypergradients.base import Differentiation
from bilevel.oracles.base import Oracle
from bilevel.solvers.inner.base import InnerSolver
from bilevel.solvers.inner.newton_cg import NewtonCG
from bilevel.solvers.inner.safe_descent import descent
from bilevel.solvers.linear.cg import CG, Preconditioner, if_known
from bilevel.theory import plan_for

_CG_STEPS = 1000
_ROUNDS = 20
_MEASURE = 10  # outer steps from one measurement of the sensitivity to the next
# A tenth of the gradient at a time, down to what rounding allows.
_ROUND = NewtonCG(tol=1e-30, drop=0.1, preconditioner=if_known)


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

    With no number given, Newton's steps take the place of gradient steps, and both solves end
    when their share of the hypergradient's error is small (`bilevel.hypergradients.AccurateAID`).

    Args:
        inner_steps: D, or a schedule k -> D_k; "auto" takes as many of Newton's steps as
            `accuracy` needs.
        inner_lr: α, at most 1/L; "auto" measures L at each outer step.
        cg_steps: N, at most; "auto" takes as many as `accuracy` needs.
        cg_tol: stop CG before N steps at this relative residual; 0 takes all of them.
        preconditioner: for CG, as in `bilevel.linear.CG`. With "auto", None is the oracle's own.
        inner: any solver of `bilevel.inner`, in place of `inner_steps` and `inner_lr`.
        accuracy: the relative error of the hypergradient that "auto" aims at.
        sensitivity: how far the hypergradient moves when ‖∇y g‖ falls by 1; None measures it, at
            every tenth outer step.

    Example:
        >>> import torch, bilevel
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: ((y - 1) ** 2).sum(),
        ...     inner=lambda x, y: ((y - 2 * x) ** 2).sum(),
        ...     x0=torch.zeros(2), y0=torch.zeros(2))
        >>> bilevel.minimize(problem, bilevel.algorithms.AIDBiO(), steps=50).x
        tensor([0.5000, 0.5000])
        >>> algorithm = bilevel.algorithms.AIDBiO(
        ...     inner_steps=20, inner_lr=0.25, cg_steps=10, outer_lr=0.1)
        >>> bilevel.minimize(problem, algorithm, steps=50).x
        tensor([0.5000, 0.5000])
    """

    inner_steps: int | Schedule | str = AUTO
    inner_lr: float | str = AUTO
    cg_steps: int | str = AUTO
    cg_tol: float = 0.0
    preconditioner: Preconditioner | None = None
    inner: InnerSolver | None = None
    accuracy: float = 0.1
    sensitivity: float | None = None

    @classmethod
    def from_theory(cls, problem: Any, epsilon: float) -> AIDBiO:
        """The settings of Theorem 1 for a problem: safe, and slow. See `bilevel.theory.plan`."""
        return cls(**plan_for(problem, "aid-bio", epsilon).settings)

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("accuracy", self.accuracy)
        if self.sensitivity is not None:
            non_negative("sensitivity", self.sensitivity)

    def inner_solver(self, k: int) -> InnerSolver:
        if self.inner is not None:
            return self.inner
        if self.inner_steps != AUTO:
            return descent(at(self.inner_steps, k), self.inner_lr)  # lines 4-6
        if self.inner_lr != AUTO:
            raise ValueError(
                f"inner_lr = {self.inner_lr!r} is for gradient steps: say how many, as "
                'inner_steps=10. With inner_steps="auto", Newton\'s method finds its own.'
            )
        return replace(_ROUND, preconditioner=self._own_preconditioner)

    def differentiation(self, k: int) -> Differentiation:
        fixed = None if self._watches else self._cg()  # line 7, AID 2)-4)
        if fixed is not None and not self._measures_inner:
            return AID(fixed)
        return AccurateAID(
            self.accuracy,
            fixed,
            rounds=_ROUNDS if self._measures_inner else 1,
            sensitivity=self.sensitivity,
            preconditioner=self._own_preconditioner,
        )

    def settled(self, oracle: Oracle, state: State) -> AIDBiO:
        """With what earlier steps measured, except where it is time to measure anew."""
        known = state.measured.get("sensitivity")
        if known is None or state.step % _MEASURE == 0 or not self._measures_inner:
            return self
        return replace(self, sensitivity=known)

    def starts_v(self) -> bool:
        return True  # line 7, AID 1)

    def cost(self, k: int) -> dict[str, int]:
        if self._measures_inner:
            return {}
        cost = {} if self.inner else {"gc_g": at(self.inner_steps, k)}
        if self._watches:
            return cost
        measured = self.inner is None and self.inner_lr == AUTO
        if not (measured or self.cg_tol):
            cost["hv"] = int(self.cg_steps) + (1 if self.warm_start and k > 0 else 0)
        return {**cost, "gc_f": 2, "jv": 1}

    @property
    def _measures_inner(self) -> bool:
        return self.inner is None and self.inner_steps == AUTO

    @property
    def _watches(self) -> bool:
        """Whether CG looks at the hypergradient to know when to end."""
        return self.cg_steps == AUTO and not self.cg_tol

    @property
    def _own_preconditioner(self) -> Preconditioner:
        return if_known if self.preconditioner is None else self.preconditioner

    def _cg(self) -> CG:
        steps = _CG_STEPS if self.cg_steps == AUTO else self.cg_steps
        return CG(steps, self.cg_tol, self.preconditioner)  # type: ignore[arg-type]
