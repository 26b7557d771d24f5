"""The randomly truncated product of BSA and TTSA."""

from __future__ import annotations

from dataclasses import dataclass

from bilevel.arguments import positive, positive_integer
from bilevel.problem.sampling import Streams
from bilevel.solvers.linear.base import Plan, SeriesSolver


@dataclass(frozen=True)
class RandomTruncation(SeriesSolver):
    """v = Q η Π_{i=1..p} (I − η H(B_i)) b, with p uniform on {0, ..., Q − 1}.

    Its expectation is the Neumann series η Σ_{i=0..Q−1} (I − ηH)^i b at (Q − 1)/2 products on
    average, but its variance does not vanish with the batch, because p stays random.

    Args:
        terms: Q.
        lr: η, at most 1/L.
        batch: the rows of each batch B_i; None is all rows.

    Example:
        >>> import torch
        >>> from bilevel.linear import MatrixHessian, RandomTruncation
        >>> RandomTruncation(terms=1, lr=0.5).solve(MatrixHessian(torch.eye(1)), torch.ones(1)).v
        tensor([0.5000])

    Reference: Ghadimi & Wang, "Approximation methods for bilevel programming", 2018,
    equation (3.3) and Lemma 3.2.
    """

    terms: int
    lr: float
    batch: int | None = 1

    def __post_init__(self) -> None:
        positive_integer("terms", self.terms)
        positive("lr", self.lr)
        if self.batch is not None:
            positive_integer("batch", self.batch)

    def plan(self, streams: Streams) -> Plan:
        p = streams.below(self.terms)
        return Plan([self.batch] * p, self.lr, scale=self.terms * self.lr, summed=False)
