"""Newton's method with conjugate gradients and a line search."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bilevel.arguments import positive, positive_integer
from bilevel.inner.base import InnerSolution, InnerSolver, InnerStatus
from bilevel.linear.base import norm
from bilevel.linear.cg import CG, Preconditioner
from bilevel.linear.inner_hessian import InnerHessian
from bilevel.oracles.base import Oracle
from bilevel.sampling import Streams

_SUFFICIENT = 1e-4  # Armijo's constant
_HIDDEN = 1e-6  # a relative rise of g that rounding may explain
_HALVINGS = 40


@dataclass(frozen=True)
class NewtonCG(InnerSolver):
    """y ← y + t d with ∇²y g d ≈ −∇y g by CG, until ‖∇y g(x, y)‖ ≤ tol.

    t starts at 1 and is halved until g decreases enough (Armijo). CG stops at the relative
    residual min(½, √(‖∇y g‖/‖∇y g₀‖)), which makes the convergence superlinear.

    Args:
        tol: where to stop, in the norm of the gradient.
        steps: the most Newton steps.
        cg_steps: the most CG steps in each of them.
        preconditioner: for CG, as in `bilevel.linear.CG`.

    Reference: Nocedal & Wright, "Numerical optimization", 2nd edition, Algorithm 7.1.
    """

    tol: float = 1e-6
    steps: int = 100
    cg_steps: int = 100
    preconditioner: Preconditioner | None = None

    def __post_init__(self) -> None:
        positive("tol", self.tol)
        positive_integer("steps", self.steps)
        positive_integer("cg_steps", self.cg_steps)
        CG(preconditioner=self.preconditioner)  # which checks it

    def solve(self, oracle: Oracle, x: Tensor, y: Tensor, streams: Streams) -> InnerSolution:
        start = None
        for step in range(self.steps + 1):
            hessian = InnerHessian(oracle, x, y, streams)
            gradient = hessian.full.gradient()
            size = norm(gradient)
            start = start or size
            if size <= self.tol:
                return InnerSolution(y, InnerStatus.CONVERGED, step, size)
            if step == self.steps:
                break
            forcing = min(0.5, (size / start) ** 0.5)
            cg = CG(self.cg_steps, forcing, self.preconditioner)
            direction = cg.solve(hessian, -gradient).v
            slope = float(gradient @ direction)
            if not slope < 0:  # CG met negative curvature at once
                direction, slope = -gradient, -(size**2)
            moved = _line_search(oracle, x, y, direction, slope)
            if moved is None:
                return InnerSolution(y, InnerStatus.STALLED, step, size)
            y = moved
        return InnerSolution(y, InnerStatus.NOT_CONVERGED, self.steps, size)


def _line_search(
    oracle: Oracle, x: Tensor, y: Tensor, direction: Tensor, slope: float
) -> Tensor | None:
    """y + t d with enough decrease, where a rise within rounding counts as none.

    Near the solution the terms of g may round by more than its value shows, but its slope stays
    exact: there the whole step is judged by the approximate Wolfe condition of Hager & Zhang
    (2005), which is Armijo's for a parabola.
    """
    value = float(oracle.inner_value(x, y))
    rounding = 10 * torch.finfo(y.dtype).eps * abs(value)
    t = 1.0
    for _ in range(_HALVINGS):
        trial = y.add(direction, alpha=t)
        rise = float(oracle.inner_value(x, trial)) - value
        if rise <= _SUFFICIENT * t * slope + rounding:
            return trial
        if t == 1 and rise <= _HIDDEN * abs(value):
            slope_there = float(oracle.inner_gradient(x, trial) @ direction)
            if slope_there <= (2 * _SUFFICIENT - 1) * slope:
                return trial
        t /= 2
    return None
