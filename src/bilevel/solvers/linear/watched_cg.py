"""Conjugate gradients that end when what is made of v has settled."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from bilevel.numerics.vectors import norm
from bilevel.solvers.linear.base import Hessian, LinearSolution, LinearStatus
from bilevel.solvers.linear.cg import Preconditioner, conjugate_gradients, if_known, inverse

_FIRST = 4  # steps before the first look
_LATER = 1.5  # each look comes after this many times the steps of the one before
_LEAST = 10  # early steps say little of how many are to come
_SAFETY = 2.0  # on the estimate of what is missing


def watched_cg(
    hessian: Hessian,
    b: Tensor,
    v0: Tensor | None,
    see: Callable[[Tensor], Tensor],
    share: float,
    steps: int,
    preconditioner: Preconditioner = if_known,
) -> tuple[LinearSolution, Tensor]:
    """v with H v ≈ b, and see(v), looked at after 4, 6, 9, 14, ... steps.

    It ends when what CG has not found yet is at most `share` of what is seen. That is estimated: as
    the change since the last look, times ‖v* − v‖_H over ‖change of v‖_H, times 2 for safety, with
    ‖v* − v‖²_H ≈ n ‖step‖²_H after n steps (at least 10), from the mean of the last three. A
    direction of little curvature that CG has not met can deceive it. The preconditioner is the
    oracle's, if it has one and no other is given.

    Reference: the guess about what is left, Nash & Sofer, "Assessing a search direction within a
    truncated-Newton method", Operations Research Letters 1990.

    Example:
        >>> import torch
        >>> from bilevel.linear import MatrixHessian
        >>> from bilevel.solvers.linear.watched_cg import watched_cg
        >>> A = torch.linspace(-1, 1, 400).view(20, 20).sin().double()
        >>> H, b = A @ A.T + torch.eye(20).double(), torch.linspace(0, 1, 20).double()
        >>> found, total = watched_cg(MatrixHessian(H), b, None, torch.sum, 0.01, steps=100)
        >>> truth = torch.linalg.solve(H, b).sum()
        >>> found.steps < 20, bool(abs(total - truth) < 0.01 * truth)
        (True, True)
    """
    scale = norm(b)
    if not 0 < scale < math.inf:  # nothing to solve, or y has diverged: say so with v
        v = torch.zeros_like(b) if scale == 0 else torch.full_like(b, math.nan)
        status = LinearStatus.CONVERGED if scale == 0 else LinearStatus.NOT_CONVERGED
        return LinearSolution(v, status, 0, scale), see(v)
    rounding = torch.finfo(b.dtype).eps * scale
    look, found = _FIRST, list[float]()
    seen: Tensor | None = None
    iterates = conjugate_gradients(hessian, b, v0, inverse(preconditioner, hessian, b))
    for step, (v, residual, energy) in enumerate(iterates):
        found.append(energy)
        if residual <= rounding:
            return LinearSolution(v, LinearStatus.CONVERGED, step, residual), see(v)
        if step == steps:
            return LinearSolution(v, LinearStatus.NOT_CONVERGED, step, residual), see(v)
        if step == look:
            # The next CG step overwrites v: `see` must give a vector of its own, never v itself.
            before, seen = seen, see(v)
            left = max(step, _LEAST) * sum(found[-3:]) / 3
            if before is not None:
                # CG's steps are H-orthogonal: the sum of their energies is ‖change of v‖²_H.
                # Where they underflow to zero, nothing is left that numbers could show.
                missing = norm(seen - before) * math.sqrt(left / (sum(found) or math.inf))
                if _SAFETY * missing <= share * norm(seen):
                    return LinearSolution(v, LinearStatus.CONVERGED, step, residual), seen
            look, found = math.ceil(look * _LATER), []
    return LinearSolution(v, LinearStatus.NEGATIVE_CURVATURE, step, residual), see(v)
