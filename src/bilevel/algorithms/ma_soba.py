"""MA-SOBA: SOBA with a moving average of the hypergradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bilevel.algorithms.registry import register
from bilevel.algorithms.triple import TripleLoop
from bilevel.arguments import Schedule, Share
from bilevel.kernels.array_code import Draws, batch, inner, minus, moved, number, outer, own, pull
from bilevel.oracles.points import Oracle
from bilevel.schedules import Values, decaying
from bilevel.solvers.updates.base import rates_of


class Four(NamedTuple):
    """The points of SOBA, and the average h."""

    x: Any
    y: Any
    v: Any
    h: Any


def _directions(oracle: Any, now: Four, tables: Any, draws: Draws, numbers: Any, k: int) -> Four:
    x, y, v, h = now
    g, Hv, Jv = inner(oracle, x, y, v, batch(draws.inner, k))
    f_x, f_y = outer(oracle, x, y, batch(draws.outer, k))
    # h starts at zero, a bias that the large first weights θ soon remove. Only x is averaged: y and
    # v follow the directions of this step.
    newest = pull(oracle, x, minus(f_x, Jv))
    h = moved(own(h), minus(own(h), newest), number(numbers, k, 0))
    return Four(h, g, minus(Hv, f_y), h)


@register(
    "ma-soba",
    paper="Chen, Xiao & Balasubramanian, JMLR 2024 (MA-SOBA)",
    cost="Gc(f) 2, Gc(g) 1, JV 1, HV 1",
    demo={"inner_lr": decaying(0.3, 0.25), "outer_lr": decaying(0.3, 0.25), "batch": 16},
    steps=400,
)
@dataclass(frozen=True, kw_only=True)
class MASOBA(TripleLoop):
    """SOBA whose x moves along a moving average h of the hypergradient.

        h ← (1 − θ) h + θ (∇x f(x, y; T) − ∇x∇y g(x, y; S) v),  x ← x − γ h

    and y and v as in SOBA. With the average, the same rate needs less smoothness of the losses.

    Args:
        inner_lr: ρ, for y and v, at most 1/L; or a schedule.
        outer_lr: γ, or a schedule.
        average: θ, the weight of the newest; or a schedule.
        batch: |S| = |T|; None means all rows.
        inner: how y and v move, in place of `inner_lr`: `bilevel.updates.ImplicitDescent(ρ)` is
            stable for every penalty that the model knows.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> algorithm = bilevel.algorithms.MASOBA(
        ...     inner_lr=0.25, outer_lr=0.02, average=0.5, batch=None)
        >>> bilevel.minimize(halves(), algorithm, steps=600).x
        tensor([0.5000, 0.5000])
    """

    inner_lr: float | Schedule = decaying(0.1, 0.5)
    average: Share | Schedule = decaying(0.9, 0.5)

    text = staticmethod(_directions)
    own = decaying(0.1, 0.5)
    points = Four

    def start(self, oracle: Oracle, x0: Tensor, y0: Tensor) -> dict[str, Tensor]:
        return {**super().start(oracle, x0, y0), "h": torch.zeros_like(x0)}

    def all_numbers(self, oracle: Oracle, ks: range) -> Values:
        return rates_of(self.average, ks, "average")[:, None]
