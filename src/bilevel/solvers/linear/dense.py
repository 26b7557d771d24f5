"""The whole Hessian, factorised: the truth for small systems."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bilevel.numerics.vectors import norm
from bilevel.solvers.linear.base import Hessian, LinearSolution, LinearSolver, LinearStatus


@dataclass(frozen=True)
class Dense(LinearSolver):
    """Build H column by column (as many products as y has numbers) and solve directly.

    A Hessian that is not positive definite is still solved, and reported as
    `negative_curvature`; if it is singular, v is not finite.

    Example:
        >>> import torch
        >>> from bilevel.linear import Dense, MatrixHessian
        >>> Dense().solve(MatrixHessian(torch.eye(2) * 4), torch.ones(2)).v
        tensor([0.2500, 0.2500])
    """

    def solve(self, hessian: Hessian, b: Tensor, v0: Tensor | None = None) -> LinearSolution:
        H = hessian.matrix(b)
        # Rounding leaves H slightly asymmetric, and Cholesky reads only one triangle.
        H = (H + H.T) / 2
        # The factorisation also tells whether H is positive definite.
        factor, failed = torch.linalg.cholesky_ex(H)
        if failed:
            # solve_ex gives infinities for a singular H, where solve would raise.
            v, status = torch.linalg.solve_ex(H, b).result, LinearStatus.NEGATIVE_CURVATURE
        else:
            v, status = torch.cholesky_solve(b[:, None], factor)[:, 0], LinearStatus.CONVERGED
        return LinearSolution(v, status, hessian.size, norm(b - H @ v))
