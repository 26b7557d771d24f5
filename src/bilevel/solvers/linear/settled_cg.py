"""Conjugate gradients stopped by the error in the energy norm."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bilevel.arguments import Count, Fraction
from bilevel.numerics.vectors import dot, norm
from bilevel.oracles.prices import Cost
from bilevel.solvers.linear.base import Hessian, LinearSolution, LinearSolver, LinearStatus
from bilevel.solvers.linear.cg import Preconditioner, conjugate_gradients, if_known, inverse
from bilevel.solvers.linear.curvature import Curvature

_LOST = 64  # times the precision: the part of a solution that rounding explains
_FLAT = 1e13  # a curvature smaller than another by this factor counts as zero


@dataclass(frozen=True)
class SettledCG(LinearSolver):
    """CG until ‖v* − v‖_H is estimated to be at most `drop` times its initial value.

    ‖v* − v_n‖²_H is the sum of ‖step‖²_H over the steps to come (Hestenes & Stiefel). It is taken
    to be below four times that of the last third of the steps: an estimate, not a bound. Unlike
    the residual, this norm does not change when y is measured in other units, and it sees
    directions of little curvature next to penalties of any size.

    A direction whose curvature is negative, or 1e-13 of the largest met, ends the solve as
    "negative_curvature": the system has no solution that could be trusted. A `Curvature` may first
    learn H itself, relative to which curvatures are then measured: a penalty of e^40 on one entry
    of y makes all others seem flat, which they are not.

    Args:
        drop: the fraction of the initial error that may remain.
        steps: the maximum number of steps.
        preconditioner: as in `bilevel.linear.CG`.

    Example:
        >>> import torch
        >>> from bilevel.linear import MatrixHessian, SettledCG
        >>> H = torch.diag(torch.tensor([1e8, 1.0])).double()
        >>> b = torch.tensor([1e8, 1.0]).double()
        >>> SettledCG(0.01).solve(MatrixHessian(H), b).v
        tensor([1., 1.], dtype=torch.float64)
    """

    drop: Fraction = 0.01
    steps: Count = 1000
    preconditioner: Preconditioner | None = if_known

    def price(self, warm: bool) -> Cost:
        return Cost(hv=None)

    def solve(self, hessian: Hessian, b: Tensor, v0: Tensor | None = None) -> LinearSolution:
        near = self.preconditioner
        if not isinstance(near, Curvature):
            return self._run(hessian, b, v0)
        found = self._run(hessian, b, near.start(v0))
        if found.status is LinearStatus.NEGATIVE_CURVATURE and near.learn(hessian, b):
            found = self._run(hessian, b, near.start(v0))
        if near.is_unsolvable(b):
            flat = found.status is LinearStatus.CONVERGED
            return replace(found, status=LinearStatus.NEGATIVE_CURVATURE) if flat else found
        if found.status is LinearStatus.NEGATIVE_CURVATURE and near.knows_flats:
            # What is left may lie along flat directions only, where it is rounding.
            error = near.error(b - hessian.product(found.v), b)
            return replace(found, status=LinearStatus.CONVERGED) if error <= self.drop else found
        return found

    def _run(self, hessian: Hessian, b: Tensor, v0: Tensor | None) -> LinearSolution:
        scale = norm(b)
        if not 0 < scale < math.inf:  # nothing to solve, or y has diverged: show it in v
            v = torch.zeros_like(b) if scale == 0 else torch.full_like(b, math.nan)
            status = LinearStatus.CONVERGED if scale == 0 else LinearStatus.NOT_CONVERGED
            return LinearSolution(v, status, 0, scale)
        rounding = 4 * float(torch.finfo(b.dtype).eps) * scale
        near = inverse(self.preconditioner, hessian, b)
        energies = list[float]()
        step, residual = 0, scale
        iterates = conjugate_gradients(hessian.product, b, v0, near, _FLAT)
        for step, (v, residual, energy) in enumerate(iterates):
            energies.append(energy)
            settled = step > 2 and self._is_settled(energies[1:])
            if settled or residual <= rounding or (step and self._is_lost(energy, b, v)):
                return LinearSolution(v, LinearStatus.CONVERGED, step, residual)
            if step == self.steps:
                return LinearSolution(v, LinearStatus.NOT_CONVERGED, step, residual)
        return LinearSolution(v, LinearStatus.NEGATIVE_CURVATURE, step, residual)

    def _is_lost(self, energy: float, b: Tensor, v: Tensor) -> bool:
        """Whether a step is rounding, where the residual has a part that no step removes."""
        if not (isinstance(self.preconditioner, Curvature) and self.preconditioner.knows_flats):
            return False
        return energy <= (_LOST * float(torch.finfo(b.dtype).eps)) ** 2 * abs(dot(b, v))

    def _is_settled(self, energies: list[float]) -> bool:
        late = max(2, len(energies) // 3)
        return sum(energies[-late:]) <= (self.drop / 2) ** 2 * sum(energies)
