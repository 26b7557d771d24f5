"""SRBA: SARAH on the three equations, refreshed on all rows from time to time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bilevel.algorithms.carried import Refreshed
from bilevel.algorithms.registry import register
from bilevel.arguments import Count
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import Cost
from bilevel.problem.sampling import Streams
from bilevel.solvers.updates.base import Update
from bilevel.solvers.updates.projected import Ball


@register(
    "srba",
    paper="Dagréou, Moreau, Vaiter & Ablin, AISTATS 2024 (SRBA)",
    cost="Gc(f) 4, Gc(g) 2, JV 2, HV 2 (each q-th step half of it, on all rows)",
    demo={"inner_lr": 0.1, "outer_lr": 0.1, "batch": 4, "period": 10},
    steps=300,
)
@dataclass(frozen=True, kw_only=True)
class SRBA(Refreshed):
    """SOBA whose three directions are carried by their changes on batches: SARAH, constant steps.

        each q-th step:  d = (D_y, D_v, D_x) on all rows;   else, on one batch B for both points,
        d ← d + D_B(x, y, v) − D_B(x′, y′, v′);   y ← y − ρ d_y,  v ← v − ρ d_v,  x ← x − γ d_x

    with x′, y′, v′ of the previous step. It needs no tables, and is near optimal for finite sums.

    Args:
        inner_lr: ρ, for y and v, at most 1/L.
        outer_lr: γ, by default 0.1.
        batch: |B|, of the rows of g and of f; None is all rows.
        inner: how y and v move, in place of `inner_lr`; see `SOBA`.
        period: q; None takes half as many steps as batches make up the rows of both losses.
        radius: v stays in the ball ‖v‖ ≤ r, as in the paper; None leaves it free. A good one is
            ‖∇y f‖/μ, where μ is the strong convexity of g.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import means
        >>> algorithm = bilevel.algorithms.SRBA(inner_lr=0.5, outer_lr=0.2, batch=5)
        >>> result = bilevel.minimize(means(), algorithm, steps=250, evaluate_every=250)
        >>> bool(result.x.norm() < 1e-8)  # x* = 0
        True
    """

    period: Count | None = None
    radius: float | None = None

    def updates(self) -> Mapping[str, Update]:
        free = super().updates()
        return free if self.radius is None else {**free, "v": Ball(free["v"], self.radius)}

    def is_fresh(self, oracle: Oracle, k: int, streams: Streams) -> bool:
        return k % self._period(oracle) == 0

    def _period(self, oracle: Oracle) -> int:
        rows = (oracle.inner_rows or 1) + (oracle.outer_rows or 1)
        return self.period or max(1, rows // (2 * (self.batch or rows)))

    def price(self, k: int) -> Cost:
        once = Cost(*self.asks)
        if self.period is None:  # the rows decide
            return Cost(None, None, None, None)
        return once if k % self.period == 0 else once + once
