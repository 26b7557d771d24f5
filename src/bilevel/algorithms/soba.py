"""SOBA: y, v and x move together, once per step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bilevel.algorithms.contract import State
from bilevel.algorithms.registry import register
from bilevel.algorithms.single_loop import Directions, SingleLoop
from bilevel.arguments import Schedule
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import CROSS, GRADIENT, HVP, OUTER, Price
from bilevel.problem.sampling import Streams
from bilevel.schedules import decaying
from bilevel.solvers.updates.base import Update
from bilevel.solvers.updates.descent import Descent


@register(
    "soba",
    paper="Dagréou, Ablin, Vaiter & Moreau, NeurIPS 2022 (SOBA)",
    cost="Gc(f) 2, Gc(g) 1, JV 1, HV 1",
    demo={"inner_lr": decaying(0.3, 0.25), "outer_lr": decaying(0.3, 0.25), "batch": 16},
    steps=400,
)
@dataclass(frozen=True, kw_only=True)
class SOBA(SingleLoop):
    """SGD on y, on the linear system for v and on x at once, at the same point.

        y ← y − ρ ∇y g(x, y; S),  v ← v − ρ (∇²y g(x, y; S) v − ∇y f(x, y; T)),
        x ← x − γ (∇x f(x, y; T) − ∇x∇y g(x, y; S) v)

    v is always warm-started, so that no series is cut off. With all rows and small constant
    steps it goes to the solution; on batches ρ and γ must fall as 1/√k.

    Args:
        inner_lr: ρ, for y and v, at most 1/L; or a schedule.
        outer_lr: γ, or a schedule.
        batch: |S| = |T|; None is all rows.

    Example:
        >>> import torch, bilevel
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: ((y - 1) ** 2).sum(),
        ...     inner=lambda x, y: ((y - 2 * x) ** 2).sum(),
        ...     x0=torch.zeros(2), y0=torch.zeros(2))
        >>> algorithm = bilevel.algorithms.SOBA(inner_lr=0.25, outer_lr=0.02, batch=None)
        >>> bilevel.minimize(problem, algorithm, steps=600).x
        tensor([0.5000, 0.5000])
    """

    inner_lr: float | Schedule = decaying(0.1, 0.5)
    batch: int | None = 64

    def updates(self) -> Mapping[str, Update]:
        inner = Descent(self.inner_lr)
        return {"y": inner, "v": inner, "x": self.moves_x(decaying(0.1, 0.5))}

    def directions(self, oracle: Oracle, state: State, streams: Streams) -> Directions:
        x, y, v = state.x, state.y, state.points["v"]
        # One linearisation on S gives ∇y g, Hv and Jv; in most oracles they share the passes.
        around = oracle.linearize(x, y, streams.rows("inner", self.batch))
        Hv, Jv = around.both(v)
        f_x, f_y = oracle.outer(x, y, streams.rows("outer", self.batch)).gradient()
        # Where the first two vanish, y = y*(x) and v = H⁻¹∇y f, and the third is ∇Φ(x). Covectors
        # are summed before `pull`, which may be a pass back through a network.
        return Directions({"y": around.gradient(), "v": Hv - f_y, "x": oracle.pull(x, f_x - Jv)})

    @property
    def asks(self) -> Price:
        return OUTER + GRADIENT + HVP + CROSS
