"""The Hessian from a few random products: an approximate inverse, and a preconditioner."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bilevel.arguments import Count, Positive
from bilevel.numerics.vectors import norm
from bilevel.oracles.prices import Cost
from bilevel.solvers.linear.base import Hessian, LinearSolution, LinearSolver
from bilevel.solvers.linear.cg import Apply


@dataclass(frozen=True)
class Nystrom(LinearSolver):
    """v = (Ĥ + ρI)⁻¹ b, with Ĥ = (HΩ)(Ω'HΩ)⁻¹(HΩ)' of rank k from k products with random Ω.

    Without iterations, nothing can diverge. It suits an H with a few large eigenvalues and the
    others about ρ. As `CG(preconditioner=Nystrom(k, ρ))` it relieves CG of those few, and the
    answer is exact.

    Args:
        rank: k; never more products than there are unknowns.
        damping: ρ.

    Example:
        >>> import torch
        >>> from bilevel.linear import MatrixHessian, Nystrom
        >>> Nystrom(rank=2, damping=1.0).solve(MatrixHessian(torch.eye(2) * 3), torch.ones(2)).v
        tensor([0.2500, 0.2500])

    Reference: Hataya & Yamada, "Nyström method for accurate and scalable implicit differentiation",
    AISTATS 2023; in this stable form, Frangella, Tropp & Udell, 2023.
    """

    rank: Count = 5
    damping: Positive = 0.01

    converges = False

    def price(self, warm: bool) -> Cost:
        return Cost(hv=self.rank)

    def solve(self, hessian: Hessian, b: Tensor, v0: Tensor | None = None) -> LinearSolution:
        U, values = self._sketch(hessian, b)
        along = U.T @ b
        inside = U @ (along / (values + self.damping))
        outside = b - U @ along
        # Once more: what rounding has left inside would be divided by ρ.
        outside = outside - U @ (U.T @ outside)
        return LinearSolution(inside + outside / self.damping, steps=len(values))

    def __call__(self, hessian: Hessian) -> Apply:
        """A preconditioner: it equalises the sketched eigenvalues and leaves the rest."""
        made: list[tuple[Tensor, Tensor]] = []

        def apply(r: Tensor) -> Tensor:
            if not made:  # wait for the first residual, whose dtype is used
                made.append(self._sketch(hessian, r))
            U, values = made[0]
            along = U.T @ r
            shrink = (values.min() + self.damping) / (values + self.damping) - 1
            return r + U @ (shrink * along)

        return apply

    def _sketch(self, hessian: Hessian, like: Tensor) -> tuple[Tensor, Tensor]:
        """Eigenvectors and eigenvalues of Ĥ."""
        k = min(self.rank, hessian.size)
        omega = torch.linalg.qr(hessian.streams.normal(k, hessian.size).T).Q.to(like)
        products = torch.stack([hessian.product(column) for column in omega.T], 1)
        # A small shift keeps Ω'HΩ positive definite despite rounding; it is subtracted again.
        shift = float(torch.finfo(like.dtype).eps) * norm(products.flatten()) * 10
        products = products + shift * omega
        factor, failed = torch.linalg.cholesky_ex(omega.T @ products)
        if failed or not bool(products.isfinite().all()):  # not convex there: no inverse to sketch
            return like.new_zeros(len(like), 1), like.new_zeros(1)
        B = torch.linalg.solve_triangular(factor, products.T, upper=False).T
        U, roots, _ = torch.linalg.svd(B, full_matrices=False)
        return U, (roots.square() - shift).clamp(min=0)
