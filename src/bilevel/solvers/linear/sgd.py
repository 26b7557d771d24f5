"""Stochastic gradient descent on ½ v'Hv − b'v: how AmIGO finds v."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bilevel.arguments import Count, Positive
from bilevel.oracles.prices import Cost
from bilevel.solvers.linear.base import Hessian, LinearSolution, LinearSolver
from bilevel.solvers.measured import Measured


@dataclass(frozen=True)
class SGD(LinearSolver):
    """`steps` times v ← v − lr (H(B_t) v − b), each on a fresh batch B_t, from the last v.

    Unlike a series it continues from where it was: the error falls from one outer step to the
    next, and no term is cut off.

    Args:
        steps: M.
        lr: at most 1/L; or `Measured()`.
        batch: the rows of each batch; None means all rows.

    Example:
        >>> import torch
        >>> from bilevel.linear import SGD, MatrixHessian
        >>> SGD(steps=60, lr=0.4).solve(MatrixHessian(torch.eye(2)), torch.ones(2)).v
        tensor([1.0000, 1.0000])

    Reference: Arbel & Mairal, "Amortized implicit differentiation for stochastic bilevel
    optimization", ICLR 2022, Algorithm 3.
    """

    steps: Count
    lr: Positive | Measured
    batch: Count | None = None

    def price(self, warm: bool) -> Cost:
        # The first step from zero needs no product.
        return Cost(hv=None if isinstance(self.lr, Measured) else self.steps - (not warm))

    def solve(self, hessian: Hessian, b: Tensor, v0: Tensor | None = None) -> LinearSolution:
        lr = hessian.rate(self.lr) if isinstance(self.lr, Measured) else self.lr
        v = b * lr if v0 is None else v0.clone()
        for _ in range(0 if v0 is not None else 1, self.steps):
            v.sub_(hessian.sampled_product(v, self.batch) - b, alpha=lr)
        return LinearSolution(v, steps=self.steps)
