"""VRBO: SPIDER on both levels, with steps of y inside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from bilevel.algorithms.carried import carry, remembered, started
from bilevel.algorithms.contract import State
from bilevel.algorithms.registry import register
from bilevel.algorithms.single_loop import Directions, SingleLoop
from bilevel.arguments import natural, positive, positive_integer
from bilevel.oracles.plans import Implicit, Series, do
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
class VRBO(SingleLoop):
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
        >>> import torch, bilevel
        >>> rows = torch.randn(50, 2, generator=torch.Generator().manual_seed(0)).double()
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y, batch: ((y - batch.data) ** 2).mean(),
        ...     inner=lambda x, y, batch: ((y - x - batch.data) ** 2).mean(),
        ...     x0=torch.ones(2).double(), y0=torch.zeros(2).double(),
        ...     outer_data=rows, inner_data=rows)
        >>> algorithm = bilevel.algorithms.VRBO(inner_steps=2, inner_lr=0.5, neumann_terms=2,
        ...     neumann_lr=0.9, outer_lr=0.4, batch=5)
        >>> result = bilevel.minimize(problem, algorithm, steps=60, evaluate_every=60)
        >>> bool(result.x.norm() < 1e-8)  # x* = 0
        True
    """

    inner_steps: int = 5
    inner_lr: float = 0.1
    neumann_terms: int = 10
    neumann_lr: float = 0.1
    batch: int | None = 64
    period: int = 10

    def __post_init__(self) -> None:
        positive_integer("inner_steps", self.inner_steps)
        positive("inner_lr", self.inner_lr)
        natural("neumann_terms", self.neumann_terms)
        positive("neumann_lr", self.neumann_lr)
        positive_integer("period", self.period)
        super().__post_init__()

    def updates(self) -> Mapping[str, Update]:
        return {"x": self.moves_x(0.1)}  # y moves inside

    def start(self, oracle: Oracle, x0: Tensor, y0: Tensor) -> dict[str, Tensor]:
        return started({"x": x0.clone(), "y": y0.clone()}, ("x", "y"))

    def directions(self, oracle: Oracle, state: State, streams: Streams) -> Directions:
        points = dict(state.points)
        for t in range(self.inner_steps):
            fresh = t == 0 and state.step % self.period == 0
            # The first change of a step is that of x, the others are those of y.
            d = self._carried(oracle, points, streams, fresh)
            before = remembered(points, d)
            points = {"x": state.x, "y": points["y"].sub(d["y"], alpha=self.inner_lr), **before}
        return Directions({"x": d["x"]}, kept={n: p for n, p in points.items() if n != "x"})

    def _carried(
        self, oracle: Oracle, points: Mapping[str, Tensor], streams: Streams, fresh: bool
    ) -> dict[str, Tensor]:
        S = streams.rows("inner", self.batch)
        size = None if fresh else self.batch
        eta, Q = self.neumann_lr, self.neumann_terms
        series = Series(streams.batches("hessian", size, Q), eta, eta, summed=True)
        rows = (streams.rows("outer", size), series, streams.rows("cross", size))

        def at_point(points: Mapping[str, Tensor]) -> dict[str, Tensor]:
            x, y = points["x"], points["y"]
            found = do(Implicit(x, y, (), *rows), oracle)
            g_y = oracle.inner(x, y, None if fresh else S).gradient()
            return {"y": g_y, "x": oracle.pull(x, found.covector)}

        return carry(points, at_point, keep=0.0 if fresh else 1.0)

    @property
    def asks(self) -> Price:
        return OUTER + GRADIENT + CROSS + Price(hv=self.neumann_terms)

    def price(self, k: int) -> Cost:
        times = 2 * self.inner_steps - (k % self.period == 0)
        return Cost(*(times * calls for calls in self.asks))
