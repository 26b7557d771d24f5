"""HOAG: hyperparameter optimisation with approximate gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bilevel.algorithms.double_loop import DoubleLoop, Parts
from bilevel.algorithms.registry import register
from bilevel.arguments import positive, positive_integer
from bilevel.errors import quoted
from bilevel.hypergradients.aid import AID
from bilevel.solvers.inner.base import InnerSolver
from bilevel.solvers.inner.lbfgs import LBFGS
from bilevel.solvers.linear.cg import CG, Preconditioner
from bilevel.solvers.updates.adaptive import AdaptiveStep

Decrease = Literal["exponential", "quadratic", "cubic"]
_TOLERANCE = 0.1  # ε₀ if none is given
_FLOOR = 1e-12  # ε_k falls towards zero, which no solve could reach


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
    ε₀/(k+1)³ (cubic). As in the author's public code ε_k is relative to the first ‖∇y g‖; unlike
    there, each step is taken once, and nothing is clipped.

    With nothing given, `HOAG()` is `AIDQN()`: tolerances relative to the warm start, and steps that
    are taken only if they lower Φ.

    Args:
        tolerance: ε₀, the fraction of the initial ‖∇y g‖ that an inner solve leaves, and the
            relative residual of CG.
        decrease: how ε_k falls.
        cg_steps: the maximum number of CG steps.
        preconditioner: for CG, as in `bilevel.linear.CG`.
        inner: an inner solver of fixed accuracy, in place of L-BFGS to ε_k.
        outer_lr: None adapts it (see `AdaptiveStep`); a number or a schedule fixes it.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> bilevel.minimize(halves(), bilevel.algorithms.HOAG(tolerance=0.1), steps=60).x
        tensor([0.5000, 0.5000])
    """

    tolerance: float | None = None
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
        if self.decrease not in list(factors):  # a list works for unhashable values too
            raise ValueError(
                f"decrease must be one of {list(factors)}, got {quoted(self.decrease)}"
            )
        tolerance = _TOLERANCE if self.tolerance is None else positive("tolerance", self.tolerance)
        return max(tolerance * factors[self.decrease], _FLOOR)

    def parts(self, k: int) -> Parts:
        epsilon = self.epsilon(k)
        # Step 1 of their Algorithm 1, in the form of the author's code: an absolute tolerance would
        # be met at once if the losses were small in scale.
        inner = self.inner or LBFGS(tol=_FLOOR, drop=epsilon)
        v = CG(positive_integer("cg_steps", self.cg_steps), epsilon, self.preconditioner)
        # Steps 2 and 3: the linear system and the gradient; step 4: x.
        # A new object each time, as ε_k changes; what it remembers is in the state.
        return Parts(inner, AID(v), self.moves_x(AdaptiveStep(epsilon)), warm_v=True)
