"""Newton's method with conjugate gradients and a line search."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bilevel.arguments import Count, NonNegative, Positive
from bilevel.numerics.vectors import dot, norm
from bilevel.oracles.points import Oracle
from bilevel.problem.sampling import Streams
from bilevel.solvers.inner.base import InnerSolution, InnerSolver, InnerStatus
from bilevel.solvers.linear.base import LinearStatus
from bilevel.solvers.linear.cg import Preconditioner
from bilevel.solvers.linear.inner_hessian import InnerHessian
from bilevel.solvers.linear.settled_cg import SettledCG

_SUFFICIENT = 1e-4  # Armijo's constant
_HIDDEN = 1e-6  # a relative rise of g that rounding may explain
_HALVINGS = 40
_LONGER = 20


@dataclass(frozen=True)
class NewtonCG(InnerSolver):
    """y ← y + t d with ∇²y g d ≈ −∇y g by CG, until ‖∇y g(x, y)‖ ≤ tol.

    t starts at 1 and is halved until g decreases enough (Armijo). CG reduces its error to a
    fraction min(0.3, √(‖∇y g‖/‖∇y g₀‖)/3), which makes the convergence superlinear; with `drop`,
    to a third of the remaining reduction, if that is more. Its error is measured in the energy norm
    (`bilevel.linear.SettledCG`), which sees small curvature next to large penalties. If CG meets
    a direction without positive curvature, y descends along it, quadrupling the step while g
    falls: from a saddle or a ridge into a valley.

    Args:
        tol: stop when the norm of the gradient is at most this.
        drop: stop also when that norm is at most this fraction of its initial value; 0 never does.
        steps: the maximum number of Newton steps.
        cg_steps: the maximum number of CG steps in each.
        preconditioner: for CG, as in `bilevel.linear.CG`.

    Reference: Nocedal & Wright, "Numerical optimization", 2nd edition, Algorithm 7.1.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> problem = halves()
        >>> found = bilevel.solve_inner(problem, problem.x0, bilevel.inner.NewtonCG(tol=1e-6))
        >>> found.gradient_norm < 1e-6
        True
    """

    tol: Positive = 1e-6
    steps: Count = 100
    cg_steps: Count = 100
    preconditioner: Preconditioner | None = None
    drop: NonNegative = 0.0

    def solve(self, oracle: Oracle, x: Tensor, y: Tensor, streams: Streams) -> InnerSolution:
        start, useful, value = None, math.inf, None
        for step in range(self.steps + 1):
            hessian = InnerHessian(oracle, x, y, streams)
            gradient = hessian.full.gradient()
            size = norm(gradient)
            start = start or size
            if not math.isfinite(size):  # nor would a fraction of infinity mean anything
                break
            if size <= max(self.tol, self.drop * start):
                return InnerSolution(y, InnerStatus.CONVERGED, step, size)
            if step == self.steps:
                break
            # Far from the solution a rough direction will do; solving beyond the goal is wasted.
            forcing = min(0.3, max((size / start) ** 0.5 / 3, self.drop * start / size / 3))
            cg = SettledCG(forcing, self.cg_steps, self.preconditioner)
            solved = cg.solve(hessian, -gradient)
            direction, slope = solved.v, dot(gradient, solved.v)
            if not slope < 0:  # CG met negative curvature at once
                direction, slope = -gradient, -(size**2)
            # If the last step did not measurably lower g, it must have lowered the decrement
            # −g'd = ‖y − y*‖²_H; otherwise it was lost in rounding. We do not use ‖∇y g‖, where the
            # rounding of one stiff entry may hide all others.
            if -slope > useful:
                return InnerSolution(y, InnerStatus.STALLED, step, size)
            # Known from the line search, except at the start.
            value = float(oracle.inner(x, y).value()) if value is None else value
            further = solved.status is LinearStatus.NEGATIVE_CURVATURE
            moved = _line_search(oracle, x, y, direction, slope, value, further)
            # Where g is nearly flat in some directions, d is of no use at any length.
            moved = moved or _downhill(oracle, x, y, gradient, value)
            if moved is None:
                return InnerSolution(y, InnerStatus.STALLED, step, size)
            # Where g is zero at its minimum, as in interpolation, its value shows no rounding.
            hidden = -slope <= _rounding(value, y) or not moved[1] < value
            useful = -slope / 4 if hidden else math.inf
            y, value = moved
        return InnerSolution(y, InnerStatus.NOT_CONVERGED, step, size)


def _line_search(
    oracle: Oracle,
    x: Tensor,
    y: Tensor,
    direction: Tensor,
    slope: float,
    value: float,
    further: bool,
) -> tuple[Tensor, float] | None:
    """y + t d with enough decrease, and g there; a rise within rounding counts as none.

    With `further`, t = 1 has no special meaning, and longer steps are tried as long as g falls.

    Near the solution the terms of g may round by more than its value shows, but its slope stays
    exact: there the whole step is judged by the approximate Wolfe condition of Hager & Zhang
    (2005), which is Armijo's for a parabola.
    """
    rounding, t = _rounding(value, y), 1.0
    for _ in range(_HALVINGS):
        trial = y.add(direction, alpha=t)
        there = float(oracle.inner(x, trial).value())
        rise = there - value
        if rise <= _SUFFICIENT * t * slope + rounding:
            return (
                _furthest(oracle, x, y, direction, there) if further and t == 1 else (trial, there)
            )
        if t == 1 and rise <= _HIDDEN * abs(value):
            slope_there = dot(oracle.inner(x, trial).gradient(), direction)
            if slope_there <= (2 * _SUFFICIENT - 1) * slope:
                return trial, there
        t /= 2
    return None


def _downhill(
    oracle: Oracle, x: Tensor, y: Tensor, gradient: Tensor, value: float
) -> tuple[Tensor, float] | None:
    """y along −∇y g, and g there, if it falls by more than rounding."""
    slope = -(norm(gradient) ** 2)
    moved = _line_search(oracle, x, y, -gradient, slope, value, further=True)
    return moved if moved and moved[1] < value - _rounding(value, y) else None


def _furthest(
    oracle: Oracle, x: Tensor, y: Tensor, direction: Tensor, value: float
) -> tuple[Tensor, float]:
    """y + 4^n d and g there, for the largest n up to which g falls."""
    t = 1.0
    for _ in range(_LONGER):
        there = float(oracle.inner(x, y.add(direction, alpha=4 * t)).value())
        if not there < value - _rounding(value, y):
            break
        t, value = 4 * t, there
    return y.add(direction, alpha=t), value


def _rounding(value: float, y: Tensor) -> float:
    """A change of g that rounding may explain."""
    return 10 * float(torch.finfo(y.dtype).eps) * abs(value)
