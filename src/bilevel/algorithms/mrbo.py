"""MRBO: self-correcting momentum, on y and on x."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from bilevel.algorithms.carried import carry, remembered, started
from bilevel.algorithms.contract import State
from bilevel.algorithms.registry import register
from bilevel.algorithms.single_loop import Directions, SingleLoop
from bilevel.arguments import Schedule, at, fraction, natural, positive
from bilevel.oracles.plans import Implicit, Series, do
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import CROSS, GRADIENT, OUTER, Cost, Price
from bilevel.problem.sampling import Streams
from bilevel.schedules import decaying
from bilevel.solvers.updates.base import Update
from bilevel.solvers.updates.descent import Descent


@register(
    "mrbo",
    paper="Yang, Ji & Liang, NeurIPS 2021, Algorithm 1 (MRBO)",
    cost="Gc(f) 4, Gc(g) 2, JV 2, HV 2Q (half of it at the first step)",
    demo={
        "inner_lr": decaying(0.3, 1 / 3),
        "outer_lr": decaying(0.1, 1 / 3),
        "neumann_terms": 10,
        "neumann_lr": 0.3,
        "batch": 16,
    },
    steps=300,
)
@dataclass(frozen=True, kw_only=True)
class MRBO(SingleLoop):
    """STORM on both levels: each direction is corrected by its own change on the same batch.

        d_y ← ∇y g(x, y; S) + (1 − η) (d_y − ∇y g(x′, y′; S)),   y ← y − ρ d_y
        d_x ← h(x, y; B) + (1 − η) (d_x − h(x′, y′; B)),         x ← x − γ d_x

    where x′, y′ are those of the previous step, and h is the hypergradient by a Neumann series of
    Q terms on the batches B.

    Args:
        inner_lr: ρ, or a schedule; of the order k^(−1/3).
        outer_lr: γ, or a schedule; of the order k^(−1/3).
        momentum: η, or a schedule; of the order k^(−2/3).
        neumann_terms: Q.
        neumann_lr: the step of the series, at most 1/L.
        batch: the rows of every batch; None is all rows.

    Example:
        >>> import torch, bilevel
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: ((y - 1) ** 2).sum(),
        ...     inner=lambda x, y: ((y - 2 * x) ** 2).sum(),
        ...     x0=torch.zeros(2), y0=torch.zeros(2))
        >>> algorithm = bilevel.algorithms.MRBO(
        ...     inner_lr=0.25, outer_lr=0.05, neumann_lr=0.25, batch=None)
        >>> bilevel.minimize(problem, algorithm, steps=300).x
        tensor([0.5000, 0.5000])
    """

    inner_lr: float | Schedule = decaying(0.1, 1 / 3)
    momentum: float | Schedule = decaying(0.5, 2 / 3)
    neumann_terms: int = 10
    neumann_lr: float = 0.1
    batch: int | None = 64

    def __post_init__(self) -> None:
        natural("neumann_terms", self.neumann_terms)
        positive("neumann_lr", self.neumann_lr)
        fraction("momentum", at(self.momentum, 0))
        super().__post_init__()  # after the numbers that the price is made of

    def updates(self) -> Mapping[str, Update]:
        return {"y": Descent(self.inner_lr), "x": self.moves_x(decaying(0.1, 1 / 3))}

    def start(self, oracle: Oracle, x0: Tensor, y0: Tensor) -> dict[str, Tensor]:
        return started({"x": x0.clone(), "y": y0.clone()}, ("x", "y"))

    def directions(self, oracle: Oracle, state: State, streams: Streams) -> Directions:
        # The same batches serve both points below: in the difference their noise cancels (STORM).
        S = streams.rows("inner", self.batch)
        hessians = streams.batches("hessian", self.batch, self.neumann_terms)
        # η Σ_q as in stocBiO's Algorithm 3: the step of the series is also its scale.
        series = Series(hessians, self.neumann_lr, self.neumann_lr, summed=True)
        rows = (streams.rows("outer", self.batch), series, streams.rows("cross", self.batch))

        def at_point(points: Mapping[str, Tensor]) -> dict[str, Tensor]:
            """∇y g and the hypergradient; no inner steps: y moves along its own direction."""
            x, y = points["x"], points["y"]
            found = do(Implicit(x, y, (), *rows), oracle)
            return {"y": oracle.inner(x, y, S).gradient(), "x": oracle.pull(x, found.covector)}

        # The first step has no earlier direction to correct: a plain estimate.
        keep = 1 - fraction("momentum", at(self.momentum, state.step)) if state.step else 0.0
        d = carry(state.points, at_point, keep)
        return Directions(d, kept=remembered(state.points, d))

    @property
    def asks(self) -> Price:
        return OUTER + GRADIENT + CROSS + Price(hv=self.neumann_terms)

    def price(self, k: int) -> Cost:
        once = Cost(*self.asks)
        return once + once if k > 0 else once
