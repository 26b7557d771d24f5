"""The stochastic Neumann series of stocBiO: the paper's Algorithm 3."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from bilevel.arguments import BatchSize, Natural, Positive
from bilevel.oracles.prices import Cost
from bilevel.problem.sampling import Streams
from bilevel.solvers.linear.base import SeriesPlan, SeriesSolver
from bilevel.solvers.measured import Measured


@dataclass(frozen=True)
class SampledNeumann(SeriesSolver):
    """v_Q = η Σ_{i=0..Q} r_i with r_Q = b and r_{i−1} = r_i − η H(B_i) r_i.

    The batches B_1, ..., B_Q are independent. With μ given, |B_{Q+1−j}| = B·Q·(1 − ημ)^(j−1)
    (at least 1, at most all rows): the first products, on which the others build, get the most
    rows. Then the bias is at most (1 − ημ)^(Q+1) ‖b‖/μ (Proposition 3).

    Args:
        terms: Q.
        lr: η, at most 1/L; or `Measured()`.
        batch: B, the rows of each batch (before scaling, with μ); None means all rows.
        strong_convexity: μ, for the decaying batch sizes; None makes all sizes equal.

    Example:
        >>> from bilevel.linear import SampledNeumann
        >>> SampledNeumann(terms=4, lr=0.5, batch=8, strong_convexity=1.0).batch_sizes(1000, 0.5)
        [32, 16, 8, 4]

    Reference: the paper, Algorithm 3 and Proposition 3.
    """

    terms: Natural
    lr: Positive | Measured
    batch: BatchSize | None = None
    strong_convexity: Positive | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.strong_convexity is not None and not isinstance(self.lr, Measured):
            self._decay(self.lr)

    def plan(self, streams: Streams, rate: Callable[[Measured], float]) -> SeriesPlan:
        lr = rate(self.lr) if isinstance(self.lr, Measured) else self.lr
        # Lines 5 to 8: r_Q = v_0, then r_{i−1} = r_i − η H(B_i) r_i for i = Q, ..., 1.
        sizes = self.batch_sizes(streams.available("hessian"), lr)
        return SeriesPlan(sizes, lr, scale=lr, summed=True)  # line 9: v_Q = η Σ r_i

    def price(self, warm: bool) -> Cost:
        return Cost(hv=None if isinstance(self.lr, Measured) else self.terms)

    def batch_sizes(self, available: int | None, lr: float) -> list[int | None]:
        """|B_Q|, ..., |B_1|, in the order of use."""
        if self.batch is None or available is None:
            return [None] * self.terms
        if self.strong_convexity is None:
            return [self.batch] * self.terms
        decay = self._decay(lr)
        # Proposition 3: |B_{Q+1−j}| = B Q (1 − ημ)^(j−1), j from 1; B_Q is used first.
        exact = (self.batch * self.terms * decay**j for j in range(self.terms))
        # 1e-9 less: an integer up to rounding must not be rounded up to the next one.
        return [min(available, max(1, math.ceil(size - 1e-9))) for size in exact]

    def _decay(self, lr: float) -> float:
        """1 − ημ, by which the sizes fall."""
        assert self.strong_convexity is not None
        contraction = lr * self.strong_convexity
        if contraction >= 1:
            raise ValueError(
                f"lr · strong_convexity must be below 1, got {lr} · {self.strong_convexity} = "
                f"{contraction}: use a smaller lr (at most 1/L)"
            )
        return 1 - contraction
