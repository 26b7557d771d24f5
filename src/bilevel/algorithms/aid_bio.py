"""AID-BiO: the paper's Algorithm 1 with approximate implicit differentiation."""

from __future__ import annotations

from dataclasses import dataclass

from bilevel.algorithms.double_loop import DoubleLoop, Parts
from bilevel.algorithms.registry import register
from bilevel.arguments import Positive, Schedule, at
from bilevel.errors import quoted
from bilevel.hypergradients.accurate import AccurateAID
from bilevel.hypergradients.aid import AID
from bilevel.hypergradients.base import Differentiation
from bilevel.solvers.inner.base import InnerSolver
from bilevel.solvers.inner.gradient_descent import GradientDescent
from bilevel.solvers.inner.newton_cg import NewtonCG
from bilevel.solvers.linear.base import LinearSolver
from bilevel.solvers.linear.cg import CG, Preconditioner, if_known
from bilevel.solvers.measured import Measured

_CG_STEPS = 1000
_SAFE = Measured()


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

    With nothing given, `AIDBiO()` is `AIDQN()`: Newton steps take the place of gradient steps,
    and x moves by quasi-Newton steps, each of which is taken only if it lowers Φ. If only x is
    given a rate or an update, or if each step has its own tasks, Newton steps and CG end when
    their share of the hypergradient's error is small (`bilevel.hypergradients.AccurateAID`).

    Args:
        inner_steps: D, or a schedule k -> D_k; None takes as many Newton steps as `accuracy`
            needs.
        inner_lr: α, at most 1/L; by default 1/L is measured at each outer step.
        cg_steps: at most N; None takes as many as `accuracy` or `cg_tol` needs.
        cg_tol: stop CG before N steps at this relative residual; 0 takes all of them.
        inner: any solver of `bilevel.inner`, in place of `inner_steps` and `inner_lr`.
        solver: any solver of `bilevel.linear`, in place of `cg_steps` and `cg_tol`.
        preconditioner: for CG, as in `bilevel.linear.CG`; None means the oracle's own if the
            method finds its own number of steps.
        accuracy: the relative error of the hypergradient at which the method aims when it finds
            its own numbers.

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

    inner_steps: int | Schedule | None = None
    inner_lr: float | Measured = _SAFE
    cg_steps: int | None = None
    cg_tol: float = 0.0
    inner: InnerSolver | None = None
    solver: LinearSolver | None = None
    preconditioner: Preconditioner | None = None
    accuracy: Positive = 0.1

    steady = True

    def parts(self, k: int) -> Parts:
        # Algorithm 1, as `DoubleLoop.step` runs it. Line 3: y_k^0 = y_{k−1}^D (`warm_start`).
        # Lines 4 to 6: D steps y ← y − α ∇y g(x, y). Line 7, AID: 1) v_k^0 = v_{k−1}^N (`warm_v`);
        # 2) N steps of CG on ∇²y g v = ∇y f; 3) ∇x∇y g v; 4) ∇̂Φ = ∇x f − ∇x∇y g v. Line 8: x.
        return Parts(self._inner(k), self._implicit(), self.moves_x(), warm_v=True)

    def _inner(self, k: int) -> InnerSolver:
        if self.inner is not None:
            return self.inner
        if self.inner_steps is not None:
            return GradientDescent(at(self.inner_steps, k), self.inner_lr)
        # Else the rate would be ignored without a word.
        if self.inner_lr != _SAFE:
            raise ValueError(
                f"inner_lr = {quoted(self.inner_lr)} is for gradient steps: say how many, as "
                "inner_steps=10. Without a number, Newton's method finds its own."
            )
        # A tenth of the gradient at a time, down to what rounding allows.
        return NewtonCG(tol=1e-30, drop=0.1, preconditioner=self.preconditioner or if_known)

    def _implicit(self) -> Differentiation:
        if self.solver is not None:
            # A cg_tol of 0 is the default: it cannot be told from one that was given.
            for name, value in (("cg_steps", self.cg_steps), ("cg_tol", self.cg_tol or None)):
                if value is not None:
                    raise ValueError(
                        f"give {name} = {quoted(value)} or solver = {quoted(self.solver)}, not both"
                    )
        fixed = self.solver
        if self.cg_steps is not None or self.cg_tol:
            most = _CG_STEPS if self.cg_steps is None else self.cg_steps
            fixed = CG(most, self.cg_tol, self.preconditioner)
        watched = self.inner is None and self.inner_steps is None  # rounds of Newton's steps
        # Both numbers are given: the paper's AID as it stands, at the stated cost.
        if fixed is not None and not watched:
            return AID(fixed)
        # With rounds=1 the inner solver is taken at its word, and only CG is watched.
        near = self.preconditioner or if_known
        return AccurateAID(self.accuracy, fixed, rounds=20 if watched else 1, preconditioner=near)
