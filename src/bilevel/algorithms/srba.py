"""SRBA: SARAH on the three equations, refreshed on all rows from time to time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from bilevel.algorithms.carried import carry, remembered, started
from bilevel.algorithms.contract import State
from bilevel.algorithms.registry import register
from bilevel.algorithms.single_loop import Directions, SingleLoop
from bilevel.algorithms.triple import TRIPLE, triple
from bilevel.arguments import Schedule, positive_integer
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import Cost, Price
from bilevel.problem.sampling import Streams
from bilevel.solvers.updates.ball import Ball
from bilevel.solvers.updates.base import Update
from bilevel.solvers.updates.descent import Descent


@register(
    "srba",
    paper="Dagréou, Moreau, Vaiter & Ablin, AISTATS 2024 (SRBA)",
    cost="Gc(f) 4, Gc(g) 2, JV 2, HV 2 (each q-th step half of it, on all rows)",
    demo={"inner_lr": 0.1, "outer_lr": 0.1, "batch": 4, "period": 10},
    steps=300,
)
@dataclass(frozen=True, kw_only=True)
class SRBA(SingleLoop):
    """SOBA whose three directions are carried by their changes on batches: SARAH, constant steps.

        each q-th step:  d = (D_y, D_v, D_x) on all rows;   else, on one batch B for both points,
        d ← d + D_B(x, y, v) − D_B(x′, y′, v′);   y ← y − ρ d_y,  v ← v − ρ d_v,  x ← x − γ d_x

    with x′, y′, v′ of the previous step. It needs no tables, and is near optimal for finite sums.

    Args:
        inner_lr: ρ, for y and v, at most 1/L.
        outer_lr: γ, by default 0.1.
        batch: |B|, of the rows of g and of f; None is all rows.
        period: q; None takes half as many steps as batches make up the rows of both losses.
        radius: v stays in the ball ‖v‖ ≤ r, as in the paper; None leaves it free. A good one is
            ‖∇y f‖/μ, where μ is the strong convexity of g.

    Example:
        >>> import torch, bilevel
        >>> rows = torch.randn(50, 2, generator=torch.Generator().manual_seed(0)).double()
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y, batch: ((y - batch.data) ** 2).mean(),
        ...     inner=lambda x, y, batch: ((y - x - batch.data) ** 2).mean(),
        ...     x0=torch.ones(2).double(), y0=torch.zeros(2).double(),
        ...     outer_data=rows, inner_data=rows)
        >>> algorithm = bilevel.algorithms.SRBA(inner_lr=0.5, outer_lr=0.2, batch=5)
        >>> result = bilevel.minimize(problem, algorithm, steps=250, evaluate_every=250)
        >>> bool(result.x.norm() < 1e-8)  # x* = 0
        True
    """

    inner_lr: float | Schedule = 0.1
    batch: int | None = 64
    period: int | None = None
    radius: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.period is not None:
            positive_integer("period", self.period)

    def updates(self) -> Mapping[str, Update]:
        inner = Descent(self.inner_lr)
        v = inner if self.radius is None else Ball(inner, self.radius)
        return {"y": inner, "v": v, "x": self.moves_x(0.1)}

    def start(self, oracle: Oracle, x0: Tensor, y0: Tensor) -> dict[str, Tensor]:
        return started(super().start(oracle, x0, y0), ("x", "y", "v"))

    def directions(self, oracle: Oracle, state: State, streams: Streams) -> Directions:
        fresh = state.step % self._period(oracle) == 0
        # One batch for both points: in the difference its noise cancels.
        inner, outer = streams.rows("inner", self.batch), streams.rows("outer", self.batch)
        if fresh:
            inner = outer = None
        d = carry(
            state.points,
            lambda points: triple(oracle, points, inner, outer),
            keep=0.0 if fresh else 1.0,
        )
        return Directions(d, kept=remembered(state.points, d))

    def _period(self, oracle: Oracle) -> int:
        rows = (oracle.inner_rows or 1) + (oracle.outer_rows or 1)
        return self.period or max(1, rows // (2 * (self.batch or rows)))

    @property
    def asks(self) -> Price:
        return TRIPLE

    def price(self, k: int) -> Cost:
        once = Cost(*self.asks)
        if self.period is None:  # the rows decide
            return Cost(None, None, None, None)
        return once if k % self.period == 0 else once + once
