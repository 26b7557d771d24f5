"""The Neumann series H⁻¹ = η Σ (I − ηH)^i, cut after Q terms."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bilevel.arguments import natural, positive
from bilevel.oracles.prices import Cost
from bilevel.solvers.linear.base import Hessian, LinearSolution, LinearSolver, LinearStatus


@dataclass(frozen=True)
class Neumann(LinearSolver):
    """v = η Σ_{i=0..Q} (I − ηH)^i b, with Q = `terms` products on all rows and η = `lr`.

    The residual b − H v is (I − ηH)^(Q+1) b. A series has no start: v0 is not used.

    Example:
        >>> import torch
        >>> from bilevel.linear import Neumann, MatrixHessian
        >>> Neumann(terms=2, lr=0.5).solve(MatrixHessian(torch.eye(1)), torch.ones(1)).v
        tensor([0.8750])

    Reference: the paper, equation (5), with all rows in each batch.
    """

    terms: int
    lr: float

    def __post_init__(self) -> None:
        natural("terms", self.terms)
        positive("lr", self.lr)

    def price(self, warm: bool) -> Cost:
        return Cost(hv=self.terms)

    def solve(self, hessian: Hessian, b: Tensor, v0: Tensor | None = None) -> LinearSolution:
        # Two vectors, whatever the number of terms.
        r, total = b.clone(), b.clone()
        for _ in range(self.terms):
            r.sub_(hessian.term(r), alpha=self.lr)
            total.add_(r)
        return LinearSolution(total * self.lr, LinearStatus.STEP_LIMIT, self.terms, residual=None)
