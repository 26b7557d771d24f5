"""The Neumann series H⁻¹ = η Σ (I − ηH)^i, cut after Q terms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bilevel.arguments import Natural, Positive
from bilevel.oracles.prices import Cost
from bilevel.problem.sampling import Streams
from bilevel.solvers.linear.base import SeriesPlan, SeriesSolver
from bilevel.solvers.measured import Measured


@dataclass(frozen=True)
class Neumann(SeriesSolver):
    """v = η Σ_{i=0..Q} (I − ηH)^i b, with Q = `terms` products on all rows and η = `lr`.

    The residual b − H v is (I − ηH)^(Q+1) b. A series has no start: v0 is not used.

    Example:
        >>> import torch
        >>> from bilevel.linear import Neumann, MatrixHessian
        >>> Neumann(terms=2, lr=0.5).solve(MatrixHessian(torch.eye(1)), torch.ones(1)).v
        tensor([0.8750])

    Reference: the paper, equation (5), with all rows in each batch.
    """

    terms: Natural
    lr: Positive

    batch = None  # all rows

    def price(self, warm: bool) -> Cost:
        return Cost(hv=self.terms)

    def plan(self, streams: Streams, rate: Callable[[Measured], float]) -> SeriesPlan:
        return SeriesPlan([None] * self.terms, self.lr, scale=self.lr, summed=True)
