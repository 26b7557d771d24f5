"""VRBO: SPIDER on both levels, with steps of y inside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bilevel.algorithms.carried import Carried, Evaluate, carry, implicit, remembered
from bilevel.algorithms.contract import State
from bilevel.algorithms.registry import register
from bilevel.algorithms.single_loop import Directions
from bilevel.arguments import Count, Natural, Positive
from bilevel.oracles.plans import Series
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import CROSS, GRADIENT, OUTER, Cost, Price
from bilevel.problem.sampling import Streams
from bilevel.solvers.updates.base import Update


@register(
    "vrbo",
    paper="Yang, Ji & Liang, NeurIPS 2021, Algorithm 2 (VRBO)",
    cost="Gc(f) 4D, Gc(g) 2D, JV 2D, HV 2DQ (each q-th step one of the 2D is left out, and one is "
    "on all rows)",
    demo={
        "inner_steps": 2,
        "inner_lr": 0.2,
        "neumann_terms": 6,
        "neumann_lr": 0.3,
        "outer_lr": 0.2,
        "batch": 8,
        "period": 5,
    },
    steps=100,
)
@dataclass(frozen=True, kw_only=True)
class VRBO(Carried):
    """D steps of y per step of x; both directions are carried by their changes on batches.

        each q-th step:  d_y = ∇y g(x, y) and d_x = h(x, y) on all rows
        D times, on batches B:  d_y ← d_y + ∇y g(x, y; B) − ∇y g(x′, y′; B),   y ← y − ρ d_y,
                                d_x ← d_x + h(x, y; B) − h(x′, y′; B)
        x ← x − γ d_x

    where x′, y′ are those before the last move, and h is the hypergradient by a Neumann series of
    Q terms.

    Args:
        inner_steps: D.
        inner_lr: ρ, at most 1/L.
        outer_lr: γ, by default 0.1.
        period: q.
        neumann_terms: Q.
        neumann_lr: the step of the series, at most 1/L.
        batch: the rows of every batch; None is all rows.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import means
        >>> algorithm = bilevel.algorithms.VRBO(inner_steps=2, inner_lr=0.5, neumann_terms=2,
        ...     neumann_lr=0.9, outer_lr=0.4, batch=5)
        >>> result = bilevel.minimize(means(), algorithm, steps=60, evaluate_every=60)
        >>> bool(result.x.norm() < 1e-8)  # x* = 0
        True
    """

    inner_steps: Count = 5
    inner_lr: Positive = 0.1
    neumann_terms: Natural = 10
    neumann_lr: Positive = 0.1
    batch: Count | None = 64
    period: Count = 10

    others, carried = "", "xy"

    def updates(self) -> Mapping[str, Update]:
        return {"x": self.moves_x(0.1)}  # y moves inside

    def keeps(self, oracle: Oracle, k: int, streams: Streams) -> float:
        return 0.0 if k % self.period == 0 else 1.0

    def on_rows(self, oracle: Oracle, streams: Streams, fresh: bool) -> Evaluate:
        S, size = streams.rows("inner", self.batch), None if fresh else self.batch
        eta, Q = self.neumann_lr, self.neumann_terms
        series = Series(streams.batches("hessian", size, Q), eta, eta, summed=True)
        outer, cross = streams.rows("outer", size), streams.rows("cross", size)
        return implicit(oracle, None if fresh else S, outer, series, cross)

    def directions(self, oracle: Oracle, state: State, streams: Streams) -> Directions:
        points = dict(state.points)
        for t in range(self.inner_steps):
            # The first change of a step is that of x, the others are those of y.
            keep = 1.0 if t else self.keeps(oracle, state.step, streams)
            d = carry(points, self.on_rows(oracle, streams, keep == 0), keep)
            before = remembered(points, d)
            points = {"x": state.x, "y": points["y"].sub(d["y"], alpha=self.inner_lr), **before}
        return Directions({"x": d["x"]}, kept={n: p for n, p in points.items() if n != "x"})

    def price(self, k: int) -> Cost:
        times = 2 * self.inner_steps - (k % self.period == 0)
        once = OUTER + GRADIENT + CROSS + Price(hv=self.neumann_terms)
        return Cost(*(times * calls for calls in once))
