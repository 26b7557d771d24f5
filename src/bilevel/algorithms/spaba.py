"""SPABA: PAGE on the three equations: a coin decides when all rows are used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from bilevel.algorithms.carried import carry, remembered, started
from bilevel.algorithms.contract import State
from bilevel.algorithms.registry import register
from bilevel.algorithms.single_loop import Directions, SingleLoop
from bilevel.algorithms.triple import TRIPLE, triple
from bilevel.arguments import Schedule, positive
from bilevel.errors import quoted
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import Cost, Price
from bilevel.problem.sampling import Streams
from bilevel.solvers.updates.base import Update
from bilevel.solvers.updates.descent import Descent


@register(
    "spaba",
    paper="Chu, Xu, Yao & Zhang, ICML 2024 (SPABA)",
    cost="a coin decides: Gc(f) 4, Gc(g) 2, JV 2, HV 2, or half of it on all rows",
    demo={"inner_lr": 0.1, "outer_lr": 0.1, "batch": 4, "probability": 0.2},
    steps=300,
)
@dataclass(frozen=True, kw_only=True)
class SPABA(SingleLoop):
    """SOBA whose three directions are PAGE's estimates, with constant steps.

        with probability p:  d = (D_y, D_v, D_x) on all rows;   else, on one batch B for both,
        d ← d + D_B(x, y, v) − D_B(x′, y′, v′);   y ← y − ρ d_y,  v ← v − ρ d_v,  x ← x − γ d_x

    with x′, y′, v′ of the previous step.

    Args:
        inner_lr: ρ, for y and v, at most 1/L.
        outer_lr: γ, by default 0.1.
        batch: |B| = b, of the rows of g and of f; None is all rows.
        probability: p; None means b/(b + n), with n rows of g, so that both kinds of step cost
            the same on average.

    Example:
        >>> import torch, bilevel
        >>> rows = torch.randn(50, 2, generator=torch.Generator().manual_seed(0)).double()
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y, batch: ((y - batch.data) ** 2).mean(),
        ...     inner=lambda x, y, batch: ((y - x - batch.data) ** 2).mean(),
        ...     x0=torch.ones(2).double(), y0=torch.zeros(2).double(),
        ...     outer_data=rows, inner_data=rows)
        >>> algorithm = bilevel.algorithms.SPABA(inner_lr=0.5, outer_lr=0.2, batch=5)
        >>> result = bilevel.minimize(problem, algorithm, steps=250, evaluate_every=250)
        >>> bool(result.x.norm() < 1e-8)  # x* = 0
        True
    """

    inner_lr: float | Schedule = 0.1
    batch: int | None = 64
    probability: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.probability is not None and positive("probability", self.probability) > 1:
            raise ValueError(f"probability must be at most 1, got {quoted(self.probability)}")

    def updates(self) -> Mapping[str, Update]:
        inner = Descent(self.inner_lr)
        return {"y": inner, "v": inner, "x": self.moves_x(0.1)}

    def start(self, oracle: Oracle, x0: Tensor, y0: Tensor) -> dict[str, Tensor]:
        return started(super().start(oracle, x0, y0), ("x", "y", "v"))

    def directions(self, oracle: Oracle, state: State, streams: Streams) -> Directions:
        # The first step has nothing to correct. The coin comes from the step's own stream: a
        # resumed run, and every process, sees it fall the same way.
        fresh = state.step == 0 or streams.happens(self._probability(oracle))
        inner, outer = streams.rows("inner", self.batch), streams.rows("outer", self.batch)
        if fresh:
            inner = outer = None
        d = carry(
            state.points,
            lambda points: triple(oracle, points, inner, outer),
            keep=0.0 if fresh else 1.0,
        )
        return Directions(d, kept=remembered(state.points, d))

    def _probability(self, oracle: Oracle) -> float:
        rows = oracle.inner_rows or 1
        b = self.batch or rows
        return self.probability or b / (b + rows)

    @property
    def asks(self) -> Price:
        return TRIPLE

    def price(self, k: int) -> Cost:
        return Cost(None, None, None, None)
