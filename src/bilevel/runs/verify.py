"""An accurate look at a point that a run would call stationary.

A small estimate proves little: y may be far from y*(x), a series too short, a batch lucky. So the
inner problem is solved further and the linear system accurately, on all rows, until ∇Φ(x) has
settled to within a fraction of the tolerance. The run has converged only if it is small then.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bilevel.hypergradients.aid import AID
from bilevel.numerics.lanczos import extreme_eigenvalues
from bilevel.numerics.vectors import norm
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import Cost
from bilevel.runs.kinks import has_kink
from bilevel.solvers.inner.base import InnerSolution, InnerStatus
from bilevel.solvers.inner.newton_cg import NewtonCG
from bilevel.solvers.linear.base import Hessian, LinearSolution, LinearSolver, LinearStatus
from bilevel.solvers.linear.cg import CG
from bilevel.solvers.linear.curvature import Curvature
from bilevel.solvers.linear.settled_cg import SettledCG

Point = tuple[Tensor, Tensor]

_ABOUT = 1.1  # times the tolerance: the slack of "at most the tolerance"
_ROUNDS = 12
_DROP = 1e-2  # the factor by which a round reduces ‖∇y g‖
_ENERGY = 1e-6  # the error of v in the energy norm, where residuals say nothing
_PRODUCTS = 4, 10  # of Lanczos: a few often show it, and there may be little time
_ROUNDING = 1e-4  # what single precision may make of a zero
_SETTLED = 0.1  # of the tolerance: how far ∇Φ may still move


@dataclass(frozen=True)
class Seen:
    """What an accurate look found.

    Args:
        norm: ‖∇Φ(x)‖, or its projected form.
        y: the inner solution there.
        doubt: why it has not converged, with advice; empty if it has.
    """

    norm: float
    y: Tensor
    doubt: str


def look(oracle: Oracle, x: Tensor, y: Tensor, tol: float, size: Callable[[Tensor], float]) -> Seen:
    """Whether x is stationary.

    Args:
        oracle: of all rows that count.
        x, y: where.
        tol: what was asked for.
        size: of a hypergradient: its norm, or its projected form.
    """
    if oracle.is_stream:
        return Seen(math.inf, y, _STREAM)
    eps = float(torch.finfo(y.dtype).eps)
    learned = Curvature()
    careful = AID(_Careful(max(1e-10, 10 * eps), learned))
    newton = _newton(learned)
    streams = oracle.streams(0)
    # The first look is at the run's own y: how far ∇Φ moves from there shows how far y was off.
    solved = InnerSolution(y)
    before: Tensor | None = None
    for _ in range(_ROUNDS):
        found = careful.at(oracle, x, solved, None, streams)
        status = found.linear.status
        if learned.is_unsolvable(oracle.outer(x, solved.y).gradient()[1]):
            status = LinearStatus.NEGATIVE_CURVATURE
        problem = _problem(status, found.linear.residual)
        if problem or not math.isfinite(norm(found.value)):
            return Seen(math.inf, solved.y, problem or "Values there are not finite.")
        # Judged by ∇Φ, not by ‖∇y g‖: only what reaches the hypergradient matters.
        moved = math.inf if before is None else norm(found.value - before)
        if moved <= _SETTLED * tol:
            break
        before, last = found.value, solved
        solved = newton.solve(oracle, x, solved.y, streams)
        if solved.steps == 0 or solved.status is InnerStatus.STALLED:
            # As near to y*(x) as rounding allows: nothing more can be found out.
            solved = solved if solved.steps else last
            found = careful.at(oracle, x, solved, None, streams)
            break
        if solved.status is InnerStatus.NOT_CONVERGED:
            return Seen(math.inf, solved.y, _UNSOLVED)
    else:  # ∇Φ never settled
        return Seen(math.inf, solved.y, _UNSOLVED)
    true = size(found.value)
    if true > _ABOUT * tol:
        return Seen(true, solved.y, _far(true, norm(y - solved.y)))
    if has_kink(oracle, x, solved.y, found.linear.v):
        return Seen(math.inf, solved.y, _KINK)
    return Seen(true, solved.y, "")


@dataclass(frozen=True)
class _Careful(LinearSolver):
    """CG as accurate as the precision allows; if that cannot be seen, with a learned H.

    Args:
        tol: relative, of the residual.
        learned: what is known of H.
    """

    tol: float
    learned: Curvature

    def price(self, warm: bool) -> Cost:
        return Cost(hv=None)

    def solve(self, hessian: Hessian, b: Tensor, v0: Tensor | None = None) -> LinearSolution:
        # A bound on the steps: on a singular system CG would never end.
        found = CG(min(10 * len(b) + 100, 5000), self.tol, self.learned).solve(hessian, b, v0)
        if found.status is LinearStatus.CONVERGED:
            return found
        short = found.status is LinearStatus.NOT_CONVERGED and self.learned.learn(hessian, b)
        if not (short or self.learned.knows_flats):
            return found
        # Next to a penalty of e^57 the residual is pure rounding: the energy norm shows the rest.
        again = SettledCG(self.tol, preconditioner=self.learned).solve(hessian, b, v0)
        error = self.learned.error(b - hessian.product(again.v), b)
        return replace(again, status=LinearStatus.CONVERGED) if error <= _ENERGY else found


def lower(oracle: Oracle, first: Point, second: Point) -> Point:
    """The point (x, y) with the lower Φ of two; the first if they are equal."""
    # Both with y solved again and on the same rows, so that they can be compared.
    values = [_outer_value(oracle, *point) for point in (first, second)]
    return first if values[0] <= values[1] else second


def curves_down(oracle: Oracle, x: Tensor, y: Tensor) -> bool:
    """Whether a few products show that g is not convex in y there: then no solve may ever end."""
    around = oracle.linearize(x, y)
    for products in _PRODUCTS:
        seen = extreme_eigenvalues(around.hvp, y, steps=products)
        # Ritz values lie inside the spectrum: a negative one is no matter of too few products.
        if seen.smallest < -_ROUNDING * seen.largest:
            return True
    return False


def _outer_value(oracle: Oracle, x: Tensor, y: Tensor) -> float:
    """Φ(x), with the inner problem solved from y; infinite if it has no value."""
    # A diverged y says nothing about Φ: the inner problem is solved first.
    solved = _newton(Curvature()).solve(oracle, x, y, oracle.streams(0))
    value = float(oracle.outer(x, solved.y).value())
    return value if math.isfinite(value) else math.inf


def _newton(learned: Curvature) -> NewtonCG:
    return NewtonCG(tol=1e-300, drop=_DROP, steps=50, preconditioner=learned)


def _problem(status: LinearStatus, residual: float | None) -> str:
    if status is LinearStatus.NEGATIVE_CURVATURE:
        return (
            "The inner loss is not strongly convex there, so the hypergradient is unreliable: "
            "add a ridge to the inner loss."
        )
    if status is LinearStatus.NOT_CONVERGED:
        return (
            "The linear system there is too ill-conditioned to be solved accurately "
            f"(residual {residual:.2g}): add a ridge to the inner loss, or use float64."
        )
    return ""


_UNSOLVED = (
    "The inner problem could not be solved accurately there: check that the inner loss is smooth "
    "and strongly convex."
)

_STREAM = (
    "The data are a stream, of which each call sees one batch, so that nothing can be said of all "
    "rows: give them as tensors or a map-style Dataset, or leave tol= out."
)

_KINK = (
    "A loss has a kink there, such as |y| or relu at 0: what autograd returns there is not "
    "a derivative. Use a smooth form, such as (y**2 + 1e-6).sqrt(), or start elsewhere."
)


def _far(true: float, distance: float) -> str:
    return (
        f"Accurate solves at the same x find {true:.3g}, with y moved by {distance:.2g}: solve the "
        "inner problem further (more inner_steps, a larger inner_lr, or "
        "inner=bilevel.inner.NewtonCG()) and the linear system too, or use larger batches."
    )
