"""The randomly truncated product of BSA and TTSA."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bilevel.arguments import BatchSize, Count, Positive
from bilevel.problem.sampling import Streams
from bilevel.solvers.linear.base import SeriesPlan, SeriesSolver
from bilevel.solvers.measured import Measured


@dataclass(frozen=True)
class RandomTruncation(SeriesSolver):
    """v = Q η Π_{i=1..p} (I − η H(B_i)) b, with p uniform on {0, ..., Q − 1}.

    Its expectation is the Neumann series η Σ_{i=0..Q−1} (I − ηH)^i b at (Q − 1)/2 products on
    average, but its variance does not vanish with the batch, because p stays random.

    Args:
        terms: Q.
        lr: η, at most 1/L; or `Measured()`.
        batch: the rows of each batch B_i; None means all rows.

    Example:
        >>> import torch
        >>> from bilevel.linear import MatrixHessian, RandomTruncation
        >>> RandomTruncation(terms=1, lr=0.5).solve(MatrixHessian(torch.eye(1)), torch.ones(1)).v
        tensor([0.5000])

    Reference: Ghadimi & Wang, "Approximation methods for bilevel programming", 2018,
    equation (3.3) and Lemma 3.2.
    """

    terms: Count
    lr: Positive | Measured
    batch: BatchSize | None = 1

    @property
    def samples(self) -> bool:
        return True  # where it ends is random, even on all rows

    def plan(self, streams: Streams, rate: Callable[[Measured], float]) -> SeriesPlan:
        lr = rate(self.lr) if isinstance(self.lr, Measured) else self.lr
        p = streams.below(self.terms)
        # Each p has probability 1/Q: the factor Q makes the expectation that of the whole series.
        return SeriesPlan([self.batch] * p, lr, scale=self.terms * lr, summed=False)
