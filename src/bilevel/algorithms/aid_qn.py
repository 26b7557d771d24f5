"""AID-QN: quasi-Newton steps on Φ, each re-solved and taken only if Φ fell."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from bilevel.algorithms.contract import Solve
from bilevel.algorithms.registry import register
from bilevel.algorithms.tried_steps import SLACK, Evaluation, TriedSteps
from bilevel.arguments import Fraction
from bilevel.hypergradients.base import Stand
from bilevel.numerics.vectors import dot, norm
from bilevel.oracles.points import Oracle
from bilevel.problem.sampling import Streams
from bilevel.solvers.inner.newton_cg import NewtonCG
from bilevel.solvers.linear.base import LinearStatus
from bilevel.solvers.linear.cg import Preconditioner
from bilevel.solvers.linear.curvature import Curvature
from bilevel.solvers.linear.inner_hessian import InnerHessian
from bilevel.solvers.linear.settled_cg import SettledCG

_ROUNDS = 6
_ROUNDING = 45  # units of the last place of f: smaller changes say nothing of how steps shrink
_FAR = 60  # rounds at the start, from which y* may be far: each covers a part of the way


@register(
    "aid-qn",
    paper="our own; AID as in Ji, Yang & Liang, ICML 2021, with L-BFGS (Liu & Nocedal, 1989)",
    cost="as the accuracy of each tried step needs",
    demo={},
    steps=30,
)
@dataclass(frozen=True, kw_only=True)
class AIDQN(TriedSteps):
    """Newton steps for y and CG for v at every trial x; L-BFGS for x.

    Both solves start from the last accepted point and reduce its error by a factor, repeatedly,
    until Φ is known well enough to tell whether the step lowers it.

    Args:
        drop: the fraction of its initial error that a solve leaves.
        preconditioner: for CG, as in `bilevel.linear.CG`; by default what the solves learn about
            the inner Hessian (`bilevel.solvers.linear.curvature.Curvature`).
        first: the largest entry of the first step, in units of max(1, max |x0|); later steps grow.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> bilevel.minimize(halves(), bilevel.algorithms.AIDQN(), steps=20).x
        tensor([0.5000, 0.5000])
    """

    drop: Fraction = 0.01
    preconditioner: Preconditioner | None = None

    def evaluate(
        self, oracle: Oracle, stand: Stand, wanted: float | None, streams: Streams
    ) -> Evaluation:
        drop = self.drop * stand.measured.get("tighter", 1.0)
        learned = Curvature(stand.memory)
        near = learned if self.preconditioner is None else self.preconditioner
        # No absolute tolerance: `drop` is relative to where a solve starts, at any scale of g.
        newton = NewtonCG(1e-300, cg_steps=1000, preconditioner=near, drop=drop)
        careful = SettledCG(drop, preconditioner=near)
        x, y, v, before = stand.x, stand.y, stand.v, None
        for _ in range(_ROUNDS if wanted is not None else _FAR):
            inner = newton.solve(oracle, x, y, streams)
            moved, y = inner.y - y, inner.y
            outer = oracle.outer(x, y)
            f_x, f_y = outer.gradient()
            hessian = InnerHessian(oracle, x, y, streams)
            linear = careful.solve(hessian, f_y, v)
            v = linear.v
            h = oracle.pull(x, f_x - hessian.cross(v, None))
            # f(x, y) − Φ(x) ≈ ⟨∇y f, y − y*⟩ ≈ ⟨v, ∇y g(x, y)⟩: taken off the value below.
            slack = dot(v, hessian.full.gradient())
            solves = (
                Solve("inner", str(inner.status), inner.steps, inner.gradient_norm),
                Solve("linear", str(linear.status), linear.steps, linear.residual),
            )
            # Where ∇y g overflows, f says nothing of Φ; and a v that solves nothing, of the slack.
            known = inner.gradient_norm is None or math.isfinite(inner.gradient_norm)
            taken = 0.0 if linear.status is LinearStatus.NEGATIVE_CURVATURE else slack
            f = float(outer.value())
            rounding = _ROUNDING * torch.finfo(x.dtype).eps * abs(f)
            left = _left(abs(slack), abs(dot(f_y, moved)), inner.steps, rounding)
            value = f - taken if known else math.inf
            found = Evaluation(x, y, v, h, value, left, solves, learned.memory)
            # Without a decrease to compare with, ∇Φ itself has to stop moving.
            settled = before is not None and norm(h - before) <= drop * norm(h)
            enough = settled if wanted is None else left <= SLACK * wanted
            # No Newton step could be taken: y is as near to y*(x) as rounding allows.
            if enough or inner.steps == 0 or not found.is_finite:
                break
            before = h
        return found


def _left(slack: float, moved: float, steps: int, rounding: float) -> float:
    """How far f(x, y) may still be from Φ(x), beyond what one more Newton step would change.

    Args:
        slack: by how much that step would change f.
        moved: by how much the last steps have.
        steps: their number.
        rounding: of f, which hides smaller changes.

    If steps shrink by a factor r < 1, those to come sum to 1/(1 − r) of the next. Where ∇y g falls
    like e^−y, each Newton step is as long as the one before, however small ∇y g has become.
    """
    ratio = slack * steps / (moved + rounding or 1.0)
    return slack / (1 - ratio) if ratio < 1 else math.inf
