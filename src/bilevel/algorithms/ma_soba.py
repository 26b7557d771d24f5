"""MA-SOBA: SOBA with a moving average of the hypergradient."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from bilevel.algorithms.contract import State
from bilevel.algorithms.registry import register
from bilevel.algorithms.single_loop import Directions, SingleLoop
from bilevel.arguments import Schedule, at, positive
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import CROSS, GRADIENT, HVP, OUTER, Price
from bilevel.problem.sampling import Streams
from bilevel.schedules import decaying
from bilevel.solvers.updates.base import Update
from bilevel.solvers.updates.descent import Descent


@register(
    "ma-soba",
    paper="Chen, Xiao & Balasubramanian, JMLR 2024 (MA-SOBA)",
    cost="Gc(f) 2, Gc(g) 1, JV 1, HV 1",
    demo={"inner_lr": decaying(0.3, 0.25), "outer_lr": decaying(0.3, 0.25), "batch": 16},
    steps=400,
)
@dataclass(frozen=True, kw_only=True)
class MASOBA(SingleLoop):
    """SOBA whose x moves along a moving average h of the hypergradient.

        h ← (1 − θ) h + θ (∇x f(x, y; T) − ∇x∇y g(x, y; S) v),  x ← x − γ h

    and y and v as in SOBA. The average asks less of the losses' smoothness for the same rate.

    Args:
        inner_lr: ρ, for y and v, at most 1/L; or a schedule.
        outer_lr: γ, or a schedule.
        average: θ, the weight of the newest; or a schedule.
        batch: |S| = |T|; None is all rows.

    Example:
        >>> import torch, bilevel
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: ((y - 1) ** 2).sum(),
        ...     inner=lambda x, y: ((y - 2 * x) ** 2).sum(),
        ...     x0=torch.zeros(2), y0=torch.zeros(2))
        >>> algorithm = bilevel.algorithms.MASOBA(
        ...     inner_lr=0.25, outer_lr=0.02, average=0.5, batch=None)
        >>> bilevel.minimize(problem, algorithm, steps=600).x
        tensor([0.5000, 0.5000])
    """

    inner_lr: float | Schedule = decaying(0.1, 0.5)
    average: float | Schedule = decaying(0.9, 0.5)
    batch: int | None = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < positive("average", at(self.average, 0)) <= 1:
            raise ValueError(f"average must be at most 1, got {at(self.average, 0)!r}")

    def updates(self) -> Mapping[str, Update]:
        inner = Descent(self.inner_lr)
        return {"y": inner, "v": inner, "x": self.moves_x(decaying(0.1, 0.5))}

    def start(self, oracle: Oracle, x0: Tensor, y0: Tensor) -> dict[str, Tensor]:
        return {**super().start(oracle, x0, y0), "h": torch.zeros_like(x0)}

    def directions(self, oracle: Oracle, state: State, streams: Streams) -> Directions:
        x, y, v, h = state.x, state.y, state.points["v"], state.points["h"]
        around = oracle.linearize(x, y, streams.rows("inner", self.batch))
        Hv, Jv = around.both(v)
        f_x, f_y = oracle.outer(x, y, streams.rows("outer", self.batch)).gradient()
        # h starts at zero, a bias that the large first weights θ soon remove.
        h = h.lerp(oracle.pull(x, f_x - Jv), positive("average", at(self.average, state.step)))
        # Only x is averaged: y and v follow the directions of this step.
        return Directions({"y": around.gradient(), "v": Hv - f_y, "x": h}, kept={"h": h})

    @property
    def asks(self) -> Price:
        return OUTER + GRADIENT + HVP + CROSS
