"""FSLA: a fully single loop with self-correcting momentum on x only."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bilevel.algorithms.carried import Evaluate, Points, SelfCorrecting
from bilevel.algorithms.contract import State
from bilevel.algorithms.registry import register
from bilevel.algorithms.single_loop import Directions
from bilevel.algorithms.triple import TripleLoop
from bilevel.arguments import Fraction, Schedule
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import CROSS, OUTER, TRIPLE, Cost, Price
from bilevel.problem.sampling import Streams
from bilevel.schedules import decaying


@register(
    "fsla",
    paper="Li, Gu & Huang, AAAI 2022 (FSLA)",
    cost="Gc(f) 6, Gc(g) 1, JV 2, HV 1 (at the first step Gc(f) 4, JV 1)",
    demo={"inner_lr": decaying(0.3, 0.25), "outer_lr": decaying(0.2, 0.25), "batch": 16},
    steps=400,
)
@dataclass(frozen=True, kw_only=True)
class FSLA(TripleLoop, SelfCorrecting):
    """SGD on y and v, each on its own batch; STORM on x.

        y ← y − ρ ∇y g(x, y; S),   v ← v − ρ (∇²y g(x, y; B) v − ∇y f(x, y; T)),
        d ← h(x, y, v; C) + (1 − η) (d − h(x′, y′, v′; C)),   x ← x − γ d

    where h = ∇x f − ∇x∇y g v, and x′, y′, v′ are those of the previous step.

    Args:
        inner_lr: ρ, for y and v, at most 1/L; or a schedule.
        outer_lr: γ, or a schedule; by default of the order k^(−1/2).
        momentum: η, or a schedule.
        batch: the rows of every batch; None is all rows.
        inner: how y and v move, in place of `inner_lr`; see `SOBA`.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> algorithm = bilevel.algorithms.FSLA(inner_lr=0.25, outer_lr=0.02, batch=None)
        >>> bilevel.minimize(halves(), algorithm, steps=600).x
        tensor([0.5000, 0.5000])
    """

    inner_lr: float | Schedule = decaying(0.1, 0.5)
    momentum: Fraction | Schedule = decaying(0.5, 0.5)

    own = decaying(0.1, 0.5)
    carried = "x"

    def directions(self, oracle: Oracle, state: State, streams: Streams) -> Directions:
        x, y, v, size = state.x, state.y, state.points["v"], self.batch
        d_y = oracle.inner(x, y, streams.rows("inner", size)).gradient()
        _, f_y = oracle.outer(x, y, streams.rows("outer", size)).gradient()
        d_v = oracle.linearize(x, y, streams.rows("hessian", size)).hvp(v) - f_y
        found = super().directions(oracle, state, streams)
        return found._replace(by_point={"y": d_y, "v": d_v, **found.by_point})

    def on_rows(self, oracle: Oracle, streams: Streams, fresh: bool) -> Evaluate:
        # One more batch of f, and one for the cross product.
        T, C = streams.rows("outer", self.batch), streams.rows("cross", self.batch)

        def h(points: Points) -> dict[str, Tensor]:
            x, y, v = points["x"], points["y"], points["v"]
            f_x, _ = oracle.outer(x, y, T).gradient()
            return {"x": oracle.pull(x, f_x - oracle.linearize(x, y, C).cross(v))}

        return h

    def price(self, k: int) -> Cost:
        again = OUTER + CROSS if k > 0 else Price()  # h at the step before
        return Cost(*(TRIPLE + OUTER + again))
