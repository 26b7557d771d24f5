"""SOBA: y, v and x move together, once per step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bilevel.algorithms.registry import register
from bilevel.algorithms.triple import TripleLoop
from bilevel.arguments import Schedule
from bilevel.kernels.array_code import Draws, Triple, batch, inner, minus, outer, pull
from bilevel.schedules import decaying


def _directions(
    oracle: Any, now: Triple, tables: Any, draws: Draws, numbers: Any, k: int
) -> Triple:
    # One linearisation on S gives ∇y g, Hv and Jv.
    g, Hv, Jv = inner(oracle, now.x, now.y, now.v, batch(draws.inner, k))
    f_x, f_y = outer(oracle, now.x, now.y, batch(draws.outer, k))
    # Where the last two vanish, y = y*(x) and v = H⁻¹∇y f, and the first is ∇Φ(x). Covectors are
    # summed before `pull`, which may be a pass back through a network.
    return Triple(pull(oracle, now.x, minus(f_x, Jv)), g, minus(Hv, f_y))


@register(
    "soba",
    paper="Dagréou, Ablin, Vaiter & Moreau, NeurIPS 2022 (SOBA)",
    cost="Gc(f) 2, Gc(g) 1, JV 1, HV 1",
    demo={"inner_lr": decaying(0.3, 0.25), "outer_lr": decaying(0.3, 0.25), "batch": 16},
    steps=400,
)
@dataclass(frozen=True, kw_only=True)
class SOBA(TripleLoop):
    """SGD on y, on the linear system for v and on x at once, at the same point.

        y ← y − ρ ∇y g(x, y; S),  v ← v − ρ (∇²y g(x, y; S) v − ∇y f(x, y; T)),
        x ← x − γ (∇x f(x, y; T) − ∇x∇y g(x, y; S) v)

    v is always warm-started, so no series is cut off. With all rows and small constant steps it
    converges to the solution; on batches ρ and γ must fall as 1/√k.

    Args:
        inner_lr: ρ, for y and v, at most 1/L; or a schedule.
        outer_lr: γ, or a schedule.
        batch: |S| = |T|; None is all rows.
        inner: how y and v move, in place of `inner_lr`: `bilevel.updates.ImplicitDescent(ρ)` is
            stable for every penalty that the model knows.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> algorithm = bilevel.algorithms.SOBA(inner_lr=0.25, outer_lr=0.02, batch=None)
        >>> bilevel.minimize(halves(), algorithm, steps=600).x
        tensor([0.5000, 0.5000])
    """

    inner_lr: float | Schedule = decaying(0.1, 0.5)

    text = staticmethod(_directions)
    own = decaying(0.1, 0.5)
