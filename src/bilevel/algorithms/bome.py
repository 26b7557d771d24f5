"""BOME: a barrier recomputed in each step, with first derivatives only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from bilevel.algorithms.contract import Algorithm, State
from bilevel.algorithms.registry import register
from bilevel.algorithms.single_loop import Directions, SingleLoop
from bilevel.arguments import Positive, Schedule, at, positive, steps_at
from bilevel.numerics.vectors import dot
from bilevel.oracles.plans import Descend, Step, do
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import OUTER, Cost
from bilevel.problem.sampling import Streams
from bilevel.solvers.updates.base import Update
from bilevel.solvers.updates.descent import Descent


@register(
    "bome",
    paper="Ye, Liu, Wright, Stone & Liu, NeurIPS 2022 (BOME)",
    cost="Gc(f) 2, Gc(g) T + 2 (two of them ∇x g), JV 0, HV 0",
    demo={"inner_steps": 10, "inner_lr": 0.2, "outer_lr": 0.05, "rate": 2.0},
    steps=400,
    bias="O(step + (1 − αμ)^T)",
)
@dataclass(frozen=True, kw_only=True)
class BOME(SingleLoop):
    """min f subject to q = g(x, y) − min g(x, ·) ≤ 0, by a step that lowers q at a given rate.

        ŷ = T gradient steps on g from y;   q = g(x, y) − g(x, ŷ), ŷ a constant
        λ = max(0, η − ⟨∇f, ∇q⟩/‖∇q‖²);   (x, y) ← (x, y) − (∇f + λ ∇q), with a step for each

    ∇q = (∇x g(x, y) − ∇x g(x, ŷ), ∇y g(x, y)) and ∇f are taken in x and y together.

    Args:
        inner_steps: T, or a schedule k -> T_k.
        inner_lr: the step on g towards ŷ, at most 1/L, and by default that of y; or a schedule.
        follow_lr: the step of y, or a schedule; at most 1/η, as λ tends to about η, and y to a
            distance v/η from the inner solution.
        outer_lr: the step of x, by default 0.1.
        rate: η: how fast q must fall, ⟨∇q, step⟩ ≥ η ‖∇q‖².
        batch: the rows of g and of f in a step; None is all rows, as in the paper.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> algorithm = bilevel.algorithms.BOME(inner_lr=0.1, outer_lr=0.02)
        >>> result = bilevel.minimize(halves(), algorithm, steps=500)
        >>> bool((result.x - 0.5).norm() < 0.01)
        True
    """

    inner_steps: int | Schedule = 10
    inner_lr: float | Schedule = 0.1
    rate: Positive = 0.5
    follow_lr: Positive | Schedule | None = None

    others = ""

    def updates(self) -> Mapping[str, Update]:
        follow = self.inner_lr if self.follow_lr is None else self.follow_lr
        return {"y": Descent(follow), "x": self.moves_x(0.1)}

    def sized(self, sizes: Mapping[str, Any]) -> Algorithm | None:
        own = dict(sizes)
        if "nu" in sizes:  # half of it: at first λ may be up to twice η
            own.update(rate=sizes["multiplier"], follow_lr=sizes["nu"] / 2)
        return super().sized(own)

    def begin(self, oracle: Oracle, points: Mapping[str, Tensor]) -> State:
        # At the inner solution itself ∇q is zero, and x would not know where to go.
        apart = points["y"].sub(points["v"], alpha=1 / self.rate)
        return super().begin(oracle, {**points, "y": apart})

    def directions(self, oracle: Oracle, state: State, streams: Streams) -> Directions:
        x, y, lr = state.x, state.y, positive("inner_lr", at(self.inner_lr, state.step))
        S, R = streams.rows("inner", self.batch), streams.rows("outer", self.batch)
        here = oracle.inner(x, y, S)
        q_y = here.gradient()
        # The first of the T steps shares its gradient with ∇q.
        rest = [Step(S, lr)] * (steps_at(self.inner_steps, state.step) - 1)
        best = do(Descend(x, y.sub(q_y, alpha=lr), rest), oracle)
        q_x = oracle.pull(x, here.gradient_x() - oracle.inner(x, best, S).gradient_x())
        f_x, f_y = oracle.outer(x, y, R).gradient()
        f_x = oracle.pull(x, f_x)
        size = dot(q_x, q_x) + dot(q_y, q_y)
        # Where ∇q = 0, y is at the inner solution and f alone counts.
        slope = dot(f_x, q_x) + dot(f_y, q_y)
        penalty = 0.0 if size == 0 else max(0.0, self.rate - slope / size)
        return Directions({"x": f_x + penalty * q_x, "y": f_y + penalty * q_y})

    def price(self, k: int) -> Cost:
        return Cost(*OUTER) + Cost(gc_g=steps_at(self.inner_steps, k) + 2)
