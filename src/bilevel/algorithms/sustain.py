"""SUSTAIN: self-correcting momentum, with a randomly truncated series."""

from __future__ import annotations

from dataclasses import dataclass

from bilevel.algorithms.carried import SelfCorrectingSeries
from bilevel.algorithms.registry import register
from bilevel.arguments import Count
from bilevel.oracles.plans import Series
from bilevel.oracles.prices import CROSS, GRADIENT, OUTER, Cost
from bilevel.problem.sampling import Streams
from bilevel.schedules import decaying


@register(
    "sustain",
    paper="Khanduri, Zeng, Hong, Wai, Wang & Yang, NeurIPS 2021 (SUSTAIN)",
    cost="Gc(f) 4, Gc(g) 2, JV 2 (half of it at the first step), HV twice a number uniform on "
    "0, ..., Q - 1",
    demo={
        "inner_lr": decaying(0.3, 1 / 3),
        "outer_lr": decaying(0.1, 1 / 3),
        "neumann_terms": 8,
        "neumann_lr": 0.3,
        "batch": 16,
    },
    steps=300,
)
@dataclass(frozen=True, kw_only=True)
class SUSTAIN(SelfCorrectingSeries):
    """STORM on both levels; of the Neumann series one random term stands for all.

        d_y ← ∇y g(x, y; S) + (1 − η) (d_y − ∇y g(x′, y′; S)),   y ← y − ρ d_y
        d_x ← h(x, y; B, p) + (1 − η) (d_x − h(x′, y′; B, p)),   x ← x − γ d_x
        h = ∇x f − ∇x∇y g · Q τ Π_{i=1..p} (I − τ ∇²y g(B_i)) ∇y f,  p uniform on {0, ..., Q − 1}

    where x′, y′ are those of the previous step, and p and all batches are the same for both points.

    Args:
        inner_lr: ρ, or a schedule; of the order k^(−1/3).
        outer_lr: γ, or a schedule; of the order k^(−1/3).
        momentum: η, or a schedule; of the order k^(−2/3).
        neumann_terms: Q.
        neumann_lr: τ, the step of the series, at most 1/L.
        batch: the rows of every batch; None is all rows.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> algorithm = bilevel.algorithms.SUSTAIN(
        ...     inner_lr=0.25, outer_lr=0.05, neumann_terms=2, neumann_lr=0.5, batch=None)
        >>> result = bilevel.minimize(halves(), algorithm, steps=300)
        >>> bool((result.x - 0.5).norm() < 0.05)
        True
    """

    neumann_terms: Count = 10  # one of none cannot be drawn

    @property
    def samples(self) -> bool:
        return True  # where the series ends is random, even on all rows

    def series(self, streams: Streams) -> Series:
        Q, tau = self.neumann_terms, self.neumann_lr
        # The last term of a series of random length, times Q: its mean is the whole series.
        hessians = streams.batches("hessian", self.batch, streams.below(Q))
        return Series(hessians, tau, scale=Q * tau, summed=False)

    def once(self) -> Cost:
        return Cost(*(OUTER + GRADIENT + CROSS)) + Cost(hv=None)
