"""The fixed-point iteration (Richardson): gradient descent on ½ v'Hv − b'v."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bilevel.arguments import Count, Positive
from bilevel.oracles.prices import Cost
from bilevel.solvers.linear.base import Hessian, LinearSolution, LinearSolver


@dataclass(frozen=True)
class FixedPoint(LinearSolver):
    """`steps` times v ← v − lr (H v − b).

    With lr ≤ 1/L the error shrinks by 1 − lr·μ per step. From zero the first step is lr·b and
    needs no product, so that n steps equal `Neumann(terms=n − 1, lr)`.

    Example:
        >>> import torch
        >>> from bilevel.linear import FixedPoint, MatrixHessian
        >>> FixedPoint(steps=60, lr=0.4).solve(MatrixHessian(torch.eye(2)), torch.ones(2)).v
        tensor([1.0000, 1.0000])

    Reference: Grazzi, Franceschi, Pontil & Salzo, "On the iteration complexity of hypergradient
    computation", ICML 2020, Algorithm 2 (fixed-point method).
    """

    steps: Count
    lr: Positive

    def price(self, warm: bool) -> Cost:
        # The first step from zero needs no product.
        return Cost(hv=self.steps if warm else max(0, self.steps - 1))

    def solve(self, hessian: Hessian, b: Tensor, v0: Tensor | None = None) -> LinearSolution:
        if v0 is None:
            # From zero, H v is zero: the first step needs no product.
            v, done = b * self.lr, 1
        else:
            v, done = v0.clone(), 0
        for _ in range(done, self.steps):
            v.sub_(hessian.product(v) - b, alpha=self.lr)
        return LinearSolution(v, steps=self.steps)
