"""Newton's method with conjugate gradients and a line search."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bilevel.arguments import non_negative, positive, positive_integer
from bilevel.numerics.vectors import dot, norm
from bilevel.oracles.points import Oracle
from bilevel.problem.sampling import Streams
from bilevel.solvers.inner.base import InnerSolution, InnerSolver, InnerStatus
from bilevel.solvers.linear.cg import CG, Preconditioner
from bilevel.solvers.linear.inner_hessian import InnerHessian

_SUFFICIENT = 1e-4  # Armijo's constant
_HIDDEN = 1e-6  # a relative rise of g that rounding may explain
_HALVINGS = 40


@dataclass(frozen=True)
class NewtonCG(InnerSolver):
    """y ← y + t d with ∇²y g d ≈ −∇y g by CG, until ‖∇y g(x, y)‖ ≤ tol.

    t starts at 1 and is halved until g decreases enough (Armijo). CG stops at the relative
    residual min(½, √(‖∇y g‖/‖∇y g₀‖)), which makes the convergence superlinear; with `drop`,
    at half of what is left to go, if that is more.

    Args:
        tol: where to stop, in the norm of the gradient.
        drop: stop also when that norm is at most this part of what it was; 0 never does.
        steps: the most Newton steps.
        cg_steps: the most CG steps in each of them.
        preconditioner: for CG, as in `bilevel.linear.CG`.

    Reference: Nocedal & Wright, "Numerical optimization", 2nd edition, Algorithm 7.1.
    """

    tol: float = 1e-6
    steps: int = 100
    cg_steps: int = 100
    preconditioner: Preconditioner | None = None
    drop: float = 0.0

    def __post_init__(self) -> None:
        positive("tol", self.tol)
        non_negative("drop", self.drop)
        positive_integer("steps", self.steps)
        positive_integer("cg_steps", self.cg_steps)
        CG(preconditioner=self.preconditioner)  # which checks it

    def solve(self, oracle: Oracle, x: Tensor, y: Tensor, streams: Streams) -> InnerSolution:
        start, useful, value = None, math.inf, None
        for step in range(self.steps + 1):
            hessian = InnerHessian(oracle, x, y, streams)
            gradient = hessian.full.gradient()
            size = norm(gradient)
            start = start or size
            goal = max(self.tol, self.drop * start)
            if size <= goal:
                return InnerSolution(y, InnerStatus.CONVERGED, step, size)
            if size > useful:  # the last step was lost in rounding
                return InnerSolution(y, InnerStatus.STALLED, step, size)
            if step == self.steps:
                break
            # Far from the solution a rough direction will do; solving beyond the goal is wasted.
            forcing = min(0.5, max((size / start) ** 0.5, self.drop * start / size / 2))
            cg = CG(self.cg_steps, forcing, self.preconditioner)
            direction = cg.solve(hessian, -gradient).v
            slope = dot(gradient, direction)
            if not slope < 0:  # CG met negative curvature at once
                direction, slope = -gradient, -(size**2)
            # Known from the line search, except at the start.
            value = float(oracle.inner(x, y).value()) if value is None else value
            moved = _line_search(oracle, x, y, direction, slope, value)
            if moved is None:
                return InnerSolution(y, InnerStatus.STALLED, step, size)
            # Values cannot confirm such a step: it was useful only if it halves the gradient.
            hidden = -slope <= _rounding(value, y)
            useful = size / 2 if hidden else math.inf
            y, value = moved
        return InnerSolution(y, InnerStatus.NOT_CONVERGED, self.steps, size)


def _line_search(
    oracle: Oracle, x: Tensor, y: Tensor, direction: Tensor, slope: float, value: float
) -> tuple[Tensor, float] | None:
    """y + t d with enough decrease and g there, where a rise within rounding counts as none.

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
            return trial, there
        if t == 1 and rise <= _HIDDEN * abs(value):
            slope_there = dot(oracle.inner(x, trial).gradient(), direction)
            if slope_there <= (2 * _SUFFICIENT - 1) * slope:
                return trial, there
        t /= 2
    return None


def _rounding(value: float, y: Tensor) -> float:
    """A change of g that rounding may explain."""
    return 10 * float(torch.finfo(y.dtype).eps) * abs(value)
