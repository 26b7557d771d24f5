"""F3SA: F2SA with self-correcting momentum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from bilevel.algorithms.carried import Evaluate, Points, SelfCorrecting
from bilevel.algorithms.contract import State
from bilevel.algorithms.registry import register
from bilevel.arguments import Count, Positive, Schedule
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import OUTER, Price
from bilevel.problem.sampling import Streams
from bilevel.schedules import decaying
from bilevel.solvers.updates.base import Update
from bilevel.solvers.updates.descent import Descent


@register(
    "f3sa",
    paper="Kwon, Kwon, Wright & Nowak, ICML 2023, Algorithm 2 (F3SA)",
    cost="Gc(f) 4, Gc(g) 8 (half of them ∇x g; half of all at the first step), JV 0, HV 0",
    demo={
        "multiplier": 20.0,
        "inner_lr": decaying(0.4, 0.2),
        "outer_lr": decaying(0.1, 0.2),
        "batch": 16,
    },
    steps=300,
    bias="O(1/λ)",
)
@dataclass(frozen=True, kw_only=True)
class F3SA(SelfCorrecting):
    """F2SA in a single loop, with STORM's estimates of all three directions.

        D_y = ∇y g(x, y; S),   D_p = ∇y g(x, p; S) + ∇y f(x, p; R)/λ,
        D_x = ∇x f(x, p; R) + λ (∇x g(x, p; S) − ∇x g(x, y; S));
        d ← D(x, y, p) + (1 − η) (d − D(x′, y′, p′)) for each, on the same rows;
        y ← y − ρ d_y,  p ← p − ρ d_p,  x ← x − γ d_x

    where x′, y′, p′ are those of the previous step. The paper's y is p here, and its z is y; its λ
    grows: for that, make several runs with growing λ, each from the end of the last.

    Args:
        multiplier: λ.
        inner_lr: ρ, for y and p, at most 1/L; or a schedule.
        outer_lr: γ, or a schedule.
        momentum: η, or a schedule.
        batch: |S| = |R|; None is all rows.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> algorithm = bilevel.algorithms.F3SA(
        ...     multiplier=100.0, inner_lr=0.25, outer_lr=0.02, batch=None)
        >>> bilevel.minimize(halves(), algorithm, steps=1000).x
        tensor([0.5000, 0.5000])
    """

    multiplier: Positive = 10.0
    inner_lr: float | Schedule = decaying(0.1, 1 / 3)
    batch: Count | None = 64

    others, carried = "p", "xyp"
    asks = OUTER + Price(gc_g=4)

    def updates(self) -> Mapping[str, Update]:
        inner = Descent(self.inner_lr)
        return {"y": inner, "p": inner, "x": self.moves_x(decaying(0.05, 1 / 3))}

    def begin(self, oracle: Oracle, points: Mapping[str, Tensor]) -> State:
        apart = points["y"].sub(points["v"], alpha=1 / self.multiplier)
        return super().begin(oracle, {**points, "p": apart})

    def on_rows(self, oracle: Oracle, streams: Streams, fresh: bool) -> Evaluate:
        S, R = streams.rows("inner", self.batch), streams.rows("outer", self.batch)
        penalty = self.multiplier

        def D(points: Points) -> dict[str, Tensor]:
            x, y, p = points["x"], points["y"], points["p"]
            at_y, at_p = oracle.inner(x, y, S), oracle.inner(x, p, S)
            f_x, f_y = oracle.outer(x, p, R).gradient()
            gap = at_p.gradient_x() - at_y.gradient_x()
            return {
                "y": at_y.gradient(),
                "p": at_p.gradient().add(f_y, alpha=1 / penalty),
                "x": oracle.pull(x, f_x + penalty * gap),
            }

        return D
