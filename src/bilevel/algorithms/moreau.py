"""MEHA: a Moreau envelope in place of the inner problem's value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from bilevel.algorithms.contract import Algorithm, State
from bilevel.algorithms.registry import register
from bilevel.algorithms.single_loop import Directions, SingleLoop
from bilevel.arguments import Count, Positive, Schedule, at, positive
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import OUTER, Price
from bilevel.problem.sampling import Streams
from bilevel.solvers.updates.base import Update
from bilevel.solvers.updates.descent import Descent


@register(
    "moreau",
    paper="Liu, Liu, Yao, Zeng & Zhang, ICML 2024 (MEHA)",
    cost="Gc(f) 2, Gc(g) 4 (two of them ∇x g), JV 0, HV 0",
    demo={"multiplier": 5.0, "inner_lr": 0.3, "outer_lr": 0.06, "batch": 16},
    steps=300,
    bias="O(1/c)",
)
@dataclass(frozen=True, kw_only=True)
class MEHA(SingleLoop):
    """min f + c (g(x, y) − min_z g(x, z) + ‖z − y‖²/2γ): a single loop, g need not be convex.

        z ← z − α (∇y g(x, z) + (z − y)/γ)
        y ← y − α (∇y f(x, y)/c + ∇y g(x, y) − (y − z)/γ)
        x ← x − β (∇x f(x, y) + c (∇x g(x, y) − ∇x g(x, z)))

    with the new z in the other two. The gap is zero if y is a stationary point of g(x, ·), even
    if g is only weakly convex, provided γ is small enough. The paper divides x's direction by c;
    here that is part of β.

    Args:
        multiplier: c, or a schedule k -> c_k; the paper's grows as k^(1/4).
        proximity: γ.
        inner_lr: α, below 1/(L + 1/γ); or a schedule.
        outer_lr: β, of the order 1/c; by default 0.1/c.
        batch: the rows of g and of f in a step; None is all rows, as in the paper.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> algorithm = bilevel.algorithms.MEHA(
        ...     multiplier=20.0, inner_lr=0.25)
        >>> bilevel.minimize(halves(), algorithm, steps=1000).x
        tensor([0.5000, 0.5000])
    """

    multiplier: float | Schedule = 10.0
    proximity: Positive = 10.0
    inner_lr: float | Schedule = 0.1
    batch: Count | None = None

    others = "z"
    asks = OUTER + Price(gc_g=4)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._c(0)

    def updates(self) -> Mapping[str, Update]:
        return {"y": Descent(self.inner_lr), "x": self.moves_x(lambda k: 0.1 / self._c(k))}

    def sized(self, sizes: Mapping[str, Any]) -> Algorithm | None:
        own = dict(sizes)
        if "multiplier" in sizes:
            # Where g is strongly convex any γ will do. With 1/γ of the order 1/c, what y and z lag
            # behind x by is the same for both, and does not count c times.
            own.update(proximity=sizes["multiplier"])
        return super().sized(own)

    def begin(self, oracle: Oracle, points: Mapping[str, Tensor]) -> State:
        # Where both come to rest, in units of y in which the inner curvature is one.
        apart, near = points["v"] / self._c(0), 1 / self.proximity
        y, z = points["y"].sub(apart, alpha=1 + near), points["y"].sub(apart, alpha=near)
        return super().begin(oracle, {**points, "y": y, "z": z})

    def directions(self, oracle: Oracle, state: State, streams: Streams) -> Directions:
        x, y, z, k = state.x, state.y, state.points["z"], state.step
        S, R = streams.rows("inner", self.batch), streams.rows("outer", self.batch)
        c, pull_together = self._c(k), 1 / self.proximity
        d_z = oracle.inner(x, z, S).gradient().add(z - y, alpha=pull_together)
        z = z.sub(d_z, alpha=positive("inner_lr", at(self.inner_lr, k)))
        here = oracle.inner(x, y, S)
        f_x, f_y = oracle.outer(x, y, R).gradient()
        d_y = here.gradient().add(f_y, alpha=1 / c).sub(y - z, alpha=pull_together)
        gap = here.gradient_x() - oracle.inner(x, z, S).gradient_x()
        return Directions({"y": d_y, "x": oracle.pull(x, f_x + c * gap)}, kept={"z": z})

    def _c(self, k: int) -> float:
        return positive("multiplier", at(self.multiplier, k))
