"""V-PBGD: gradient descent on f with the inner problem's value gap as a penalty."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from bilevel.algorithms.contract import State
from bilevel.algorithms.registry import register
from bilevel.algorithms.single_loop import Directions, SingleLoop
from bilevel.arguments import Count, Schedule, at, positive, steps_at
from bilevel.oracles.plans import Descend, Step, do
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import OUTER, Cost
from bilevel.problem.sampling import Streams
from bilevel.solvers.updates.base import Update
from bilevel.solvers.updates.descent import Descent


@register(
    "v-pbgd",
    paper="Shen & Chen, ICML 2023, Algorithm 1 (V-PBGD)",
    cost="Gc(f) 2, Gc(g) T + 3 (two of them ∇x g), JV 0, HV 0",
    demo={"multiplier": 5.0, "inner_steps": 3, "inner_lr": 0.3, "outer_lr": 0.06, "batch": 16},
    steps=300,
    bias="O(1/λ)",
)
@dataclass(frozen=True, kw_only=True)
class VPBGD(SingleLoop):
    """One step of (x, y) on f + λ (g(x, y) − g(x, z)) after T steps of z towards argmin g(x, ·).

        T times:  z ← z − α ∇y g(x, z; S);
        y ← y − α min(1/λ, 1) (∇y f(x, y; R) + λ ∇y g(x, y; S)),
        x ← x − γ (∇x f(x, y; R) + λ (∇x g(x, y; S) − ∇x g(x, z; S)))

    As in the paper both steps are of order 1/λ, which here is part of γ. The inner problem
    need not be strongly convex: a Polyak-Łojasiewicz inequality suffices.

    Args:
        multiplier: λ, or a schedule k -> λ_k that grows.
        inner_steps: T, or a schedule k -> T_k.
        inner_lr: α, at most 1/L; or a schedule.
        outer_lr: γ, of the order 1/λ, as y lags behind z by a step; by default 0.1/λ.
        batch: |S| = |R|; None is all rows.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> algorithm = bilevel.algorithms.VPBGD(
        ...     multiplier=20.0, inner_lr=0.25, batch=None)
        >>> bilevel.minimize(halves(), algorithm, steps=1000).x
        tensor([0.5000, 0.5000])
    """

    multiplier: float | Schedule = 10.0
    inner_steps: int | Schedule = 1
    inner_lr: float | Schedule = 0.1
    batch: Count | None = 64

    others = "z"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._penalty(0)

    def updates(self) -> Mapping[str, Update]:
        return {"y": Descent(self.inner_lr), "x": self.moves_x(lambda k: 0.1 / self._penalty(k))}

    def begin(self, oracle: Oracle, points: Mapping[str, Tensor]) -> State:
        apart = points["y"].sub(points["v"], alpha=1 / self._penalty(0))
        return super().begin(oracle, {**points, "y": apart, "z": points["y"]})

    def directions(self, oracle: Oracle, state: State, streams: Streams) -> Directions:
        x, y, k = state.x, state.y, state.step
        penalty, lr = self._penalty(k), positive("inner_lr", at(self.inner_lr, k))
        batches = streams.batches("inner", self.batch, steps_at(self.inner_steps, k))
        z = do(Descend(x, state.points["z"], [Step(rows, lr) for rows in batches]), oracle)
        # One batch for y and z: otherwise the noise of their difference would be λ times as large.
        S = streams.rows("cross", self.batch)
        f_x, f_y = oracle.outer(x, y, streams.rows("outer", self.batch)).gradient()
        here = oracle.inner(x, y, S)
        gap = here.gradient_x() - oracle.inner(x, z, S).gradient_x()
        d_x = oracle.pull(x, f_x + penalty * gap)
        d_y = (f_y + penalty * here.gradient()) * min(1.0, 1 / penalty)
        return Directions({"x": d_x, "y": d_y}, kept={"z": z})

    def _penalty(self, k: int) -> float:
        return positive("multiplier", at(self.multiplier, k))

    def price(self, k: int) -> Cost:
        return Cost(*OUTER) + Cost(gc_g=steps_at(self.inner_steps, k) + 3)
