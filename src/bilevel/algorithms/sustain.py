"""SUSTAIN: self-correcting momentum, with a randomly truncated series."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from bilevel.algorithms.carried import carry, remembered, started
from bilevel.algorithms.contract import State
from bilevel.algorithms.registry import register
from bilevel.algorithms.single_loop import Directions, SingleLoop
from bilevel.arguments import Schedule, at, fraction, positive, positive_integer
from bilevel.oracles.plans import Implicit, Series, do
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import CROSS, GRADIENT, OUTER, Cost, Price
from bilevel.problem.sampling import Streams
from bilevel.schedules import decaying
from bilevel.solvers.updates.base import Update
from bilevel.solvers.updates.descent import Descent


@register(
    "sustain",
    paper="Khanduri, Zeng, Hong, Wai, Wang & Yang, NeurIPS 2021 (SUSTAIN)",
    cost="Gc(f) 4, Gc(g) 2, JV 2 (half of it at the first step), HV twice a number uniform on "
    "0, ..., Q - 1",
    demo={
        "inner_lr": decaying(0.3, 1 / 3),
        "outer_lr": decaying(0.1, 1 / 3),
        "neumann_terms": 8,
        "neumann_lr": 0.3,
        "batch": 16,
    },
    steps=300,
)
@dataclass(frozen=True, kw_only=True)
class SUSTAIN(SingleLoop):
    """STORM on both levels; of the Neumann series one random term stands for all.

        d_y ← ∇y g(x, y; S) + (1 − η) (d_y − ∇y g(x′, y′; S)),   y ← y − ρ d_y
        d_x ← h(x, y; B, p) + (1 − η) (d_x − h(x′, y′; B, p)),   x ← x − γ d_x
        h = ∇x f − ∇x∇y g · Q τ Π_{i=1..p} (I − τ ∇²y g(B_i)) ∇y f,  p uniform on {0, ..., Q − 1}

    where x′, y′ are those of the previous step, and p and all batches are the same for both points.

    Args:
        inner_lr: ρ, or a schedule; of the order k^(−1/3).
        outer_lr: γ, or a schedule; of the order k^(−1/3).
        momentum: η, or a schedule; of the order k^(−2/3).
        neumann_terms: Q.
        neumann_lr: τ, the step of the series, at most 1/L.
        batch: the rows of every batch; None is all rows.

    Example:
        >>> import torch, bilevel
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: ((y - 1) ** 2).sum(),
        ...     inner=lambda x, y: ((y - 2 * x) ** 2).sum(),
        ...     x0=torch.zeros(2), y0=torch.zeros(2))
        >>> algorithm = bilevel.algorithms.SUSTAIN(
        ...     inner_lr=0.25, outer_lr=0.05, neumann_terms=2, neumann_lr=0.5, batch=None)
        >>> result = bilevel.minimize(problem, algorithm, steps=300)
        >>> bool((result.x - 0.5).norm() < 0.05)
        True
    """

    inner_lr: float | Schedule = decaying(0.1, 1 / 3)
    momentum: float | Schedule = decaying(0.5, 2 / 3)
    neumann_terms: int = 10
    neumann_lr: float = 0.1
    batch: int | None = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        positive_integer("neumann_terms", self.neumann_terms)
        positive("neumann_lr", self.neumann_lr)
        fraction("momentum", at(self.momentum, 0))

    @property
    def samples(self) -> bool:
        return True  # where the series ends is random, even on all rows

    def updates(self) -> Mapping[str, Update]:
        return {"y": Descent(self.inner_lr), "x": self.moves_x(decaying(0.1, 1 / 3))}

    def start(self, oracle: Oracle, x0: Tensor, y0: Tensor) -> dict[str, Tensor]:
        return started({"x": x0.clone(), "y": y0.clone()}, ("x", "y"))

    def directions(self, oracle: Oracle, state: State, streams: Streams) -> Directions:
        Q, tau, size = self.neumann_terms, self.neumann_lr, self.batch
        # The last term of a series of random length, times Q: its mean is the whole series.
        hessians = streams.batches("hessian", size, streams.below(Q))
        series = Series(hessians, tau, scale=Q * tau, summed=False)
        rows = (streams.rows("outer", size), series, streams.rows("cross", size))
        S = streams.rows("inner", size)

        def at_point(points: Mapping[str, Tensor]) -> dict[str, Tensor]:
            x, y = points["x"], points["y"]
            found = do(Implicit(x, y, (), *rows), oracle)
            return {"y": oracle.inner(x, y, S).gradient(), "x": oracle.pull(x, found.covector)}

        keep = 1 - fraction("momentum", at(self.momentum, state.step)) if state.step else 0.0
        d = carry(state.points, at_point, keep)
        return Directions(d, kept=remembered(state.points, d))

    @property
    def asks(self) -> Price:
        return OUTER + GRADIENT + CROSS

    def price(self, k: int) -> Cost:
        once = Cost(*self.asks) + Cost(hv=None)
        return once + once if k > 0 else once
