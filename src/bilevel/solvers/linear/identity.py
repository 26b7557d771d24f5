"""The Hessian as if it were a multiple of the identity."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bilevel.arguments import Positive
from bilevel.oracles.prices import Cost
from bilevel.solvers.linear.base import Hessian, LinearSolution, LinearSolver


@dataclass(frozen=True)
class Identity(LinearSolver):
    """v = scale · b, as if H were I/scale: no product at all, but a lasting bias.

    With the inner learning rate as the scale, the hypergradient is that through one inner step.

    Args:
        scale: the factor of b.

    Example:
        >>> import torch
        >>> from bilevel.linear import Identity, MatrixHessian
        >>> Identity(0.5).solve(MatrixHessian(torch.eye(2)), torch.ones(2)).v
        tensor([0.5000, 0.5000])

    Reference: Luketina, Berglund, Greff & Raiko, "Scalable gradient-based tuning of continuous
    regularization hyperparameters", ICML 2016 (T1-T2).
    """

    scale: Positive = 1.0

    converges = False

    def price(self, warm: bool) -> Cost:
        return Cost(hv=0)

    def solve(self, hessian: Hessian, b: Tensor, v0: Tensor | None = None) -> LinearSolution:
        return LinearSolution(b * self.scale)
