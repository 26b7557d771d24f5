"""MRBO: self-correcting momentum, on y and on x."""

from __future__ import annotations

from dataclasses import dataclass

from bilevel.algorithms.carried import SelfCorrectingSeries
from bilevel.algorithms.registry import register
from bilevel.oracles.plans import Series
from bilevel.oracles.prices import CROSS, GRADIENT, OUTER, Cost
from bilevel.problem.sampling import Streams
from bilevel.schedules import decaying


@register(
    "mrbo",
    paper="Yang, Ji & Liang, NeurIPS 2021, Algorithm 1 (MRBO)",
    cost="Gc(f) 4, Gc(g) 2, JV 2, HV 2Q (half of it at the first step)",
    demo={
        "inner_lr": decaying(0.3, 1 / 3),
        "outer_lr": decaying(0.1, 1 / 3),
        "neumann_terms": 10,
        "neumann_lr": 0.3,
        "batch": 16,
    },
    steps=300,
)
@dataclass(frozen=True, kw_only=True)
class MRBO(SelfCorrectingSeries):
    """STORM on both levels: each direction is corrected by its own change on the same batch.

        d_y ← ∇y g(x, y; S) + (1 − η) (d_y − ∇y g(x′, y′; S)),   y ← y − ρ d_y
        d_x ← h(x, y; B) + (1 − η) (d_x − h(x′, y′; B)),         x ← x − γ d_x

    where x′, y′ are those of the previous step, and h is the hypergradient by a Neumann series of
    Q terms on the batches B.

    Args:
        inner_lr: ρ, or a schedule; of the order k^(−1/3).
        outer_lr: γ, or a schedule; of the order k^(−1/3).
        momentum: η, or a schedule; of the order k^(−2/3).
        neumann_terms: Q.
        neumann_lr: the step of the series, at most 1/L.
        batch: the rows of every batch; None is all rows.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> algorithm = bilevel.algorithms.MRBO(
        ...     inner_lr=0.25, outer_lr=0.05, neumann_lr=0.25, batch=None)
        >>> bilevel.minimize(halves(), algorithm, steps=300).x
        tensor([0.5000, 0.5000])
    """

    def series(self, streams: Streams) -> Series:
        hessians = streams.batches("hessian", self.batch, self.neumann_terms)
        # η Σ_q as in stocBiO's Algorithm 3: the step of the series is also its scale.
        return Series(hessians, self.neumann_lr, self.neumann_lr, summed=True)

    def once(self) -> Cost:
        return Cost(*(OUTER + GRADIENT + CROSS)) + Cost(hv=self.neumann_terms)
