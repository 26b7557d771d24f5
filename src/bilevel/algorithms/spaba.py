"""SPABA: PAGE on the three equations: a coin decides when all rows are used."""

from __future__ import annotations

from dataclasses import dataclass

from bilevel.algorithms.carried import Refreshed
from bilevel.algorithms.registry import register
from bilevel.arguments import Share
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import Cost
from bilevel.problem.sampling import Streams


@register(
    "spaba",
    paper="Chu, Xu, Yao & Zhang, ICML 2024 (SPABA)",
    cost="a coin decides: Gc(f) 4, Gc(g) 2, JV 2, HV 2, or half of it on all rows",
    demo={"inner_lr": 0.1, "outer_lr": 0.1, "batch": 4, "probability": 0.2},
    steps=300,
)
@dataclass(frozen=True, kw_only=True)
class SPABA(Refreshed):
    """SOBA whose three directions are PAGE's estimates, with constant steps.

        with probability p:  d = (D_y, D_v, D_x) on all rows;   else, on one batch B for both,
        d ← d + D_B(x, y, v) − D_B(x′, y′, v′);   y ← y − ρ d_y,  v ← v − ρ d_v,  x ← x − γ d_x

    with x′, y′, v′ of the previous step.

    Args:
        inner_lr: ρ, for y and v, at most 1/L.
        outer_lr: γ, by default 0.1.
        batch: |B| = b, of the rows of g and of f; None is all rows.
        inner: how y and v move, in place of `inner_lr`; see `SOBA`.
        probability: p; None means b/(b + n), with n rows of g, so that both kinds of step cost
            the same on average.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import means
        >>> algorithm = bilevel.algorithms.SPABA(inner_lr=0.5, outer_lr=0.2, batch=5)
        >>> result = bilevel.minimize(means(), algorithm, steps=250, evaluate_every=250)
        >>> bool(result.x.norm() < 1e-8)  # x* = 0
        True
    """

    probability: Share | None = None

    def is_fresh(self, oracle: Oracle, k: int, streams: Streams) -> bool:
        # The first step has nothing to correct. The coin comes from the step's own stream: a
        # resumed run, and every process, sees it fall the same way.
        return k == 0 or streams.happens(self._probability(oracle))

    def _probability(self, oracle: Oracle) -> float:
        rows = oracle.inner_rows or 1
        b = self.batch or rows
        return self.probability or b / (b + rows)

    def price(self, k: int) -> Cost:
        return Cost(None, None, None, None)
