"""Conjugate gradients (Hestenes & Stiefel, 1952), with an optional diagonal preconditioner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bilevel.arguments import natural, non_negative
from bilevel.linear.base import Hessian, LinearSolution, LinearSolver, LinearStatus, norm

Preconditioner = Tensor | Callable[[Hessian], Tensor]


def jacobi(hessian: Hessian) -> Tensor:
    """The Hessian's own diagonal, for `CG(preconditioner=jacobi)`."""
    return hessian.diagonal()


# How this differs from a textbook CG:
# - a zero right-hand side and a start at the solution return at once, without 0/0;
# - a start at zero needs no product for its residual, a warm start needs one;
# - it returns the last iterate, and the residual of that iterate;
# - it ends at the residual that rounding allows, even with tol = 0: the recursion below that
#   level only adds noise;
# - p'Hp <= 0 means that H is not positive definite: it stops there and says so.
@dataclass(frozen=True)
class CG(LinearSolver):
    """At most `steps` conjugate-gradient steps, until ‖b − H v‖ ≤ tol ‖b‖.

    After N steps from v0 the error in the H-norm is at most
    2 ((√κ − 1)/(√κ + 1))^N times that of v0.

    Args:
        steps: N, the most steps that are taken.
        tol: relative tolerance; 0 takes all the steps.
        preconditioner: the diagonal of a matrix near H, as a positive tensor, or a function
            of the Hessian that gives it, such as `bilevel.linear.jacobi`.

    Example:
        >>> import torch
        >>> from bilevel.linear import CG, MatrixHessian
        >>> H = torch.tensor([[2.0, 1.0], [1.0, 3.0]])
        >>> solution = CG(steps=2, tol=0.0).solve(MatrixHessian(H), torch.tensor([3.0, 4.0]))
        >>> solution.v, str(solution.status)
        (tensor([1.0000, 1.0000]), 'converged')

    Reference: the paper, Algorithm 1, AID, steps 1) and 2).
    """

    steps: int = 20
    tol: float = 0.0
    preconditioner: Preconditioner | None = None

    def __post_init__(self) -> None:
        natural("steps", self.steps)
        non_negative("tol", self.tol)

    def solve(self, hessian: Hessian, b: Tensor, v0: Tensor | None = None) -> LinearSolution:
        inverse = self._inverse_diagonal(hessian, b)
        v = torch.zeros_like(b) if v0 is None else v0.clone()
        r = b.clone() if v0 is None else b - hessian.product(v0)
        goal = norm(b) * max(self.tol, torch.finfo(b.dtype).eps)
        residual = norm(r)
        if residual <= goal:
            return LinearSolution(v, LinearStatus.CONVERGED, 0, residual)
        z = r if inverse is None else r * inverse
        p = z.clone()
        rz = float(r @ z)
        for step in range(1, self.steps + 1):
            Hp = hessian.product(p)
            curvature = float(p @ Hp)
            if curvature <= 0:
                return LinearSolution(v, LinearStatus.NEGATIVE_CURVATURE, step - 1, residual)
            v.add_(p, alpha=rz / curvature)
            r.sub_(Hp, alpha=rz / curvature)
            residual = norm(r)
            if residual <= goal:
                return LinearSolution(v, LinearStatus.CONVERGED, step, residual)
            z = r if inverse is None else r * inverse
            rz_before, rz = rz, float(r @ z)
            p.mul_(rz / rz_before).add_(z)
        asked = self.tol > 0
        status = LinearStatus.NOT_CONVERGED if asked else LinearStatus.STEP_LIMIT
        return LinearSolution(v, status, self.steps, residual)

    def _inverse_diagonal(self, hessian: Hessian, b: Tensor) -> Tensor | None:
        if self.preconditioner is None:
            return None
        given = self.preconditioner
        diagonal = given if isinstance(given, Tensor) else given(hessian)
        if diagonal.shape != b.shape:
            raise ValueError(
                f"the preconditioner has shape {tuple(diagonal.shape)}, the system {tuple(b.shape)}"
            )
        if not bool((diagonal > 0).all()):
            raise ValueError(f"the preconditioner must be positive, its least is {diagonal.min()}")
        return diagonal.reciprocal()
