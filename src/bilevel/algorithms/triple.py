"""The three equations that single loops follow: for y, for v and for x."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from bilevel.algorithms.single_loop import SingleLoop
from bilevel.arguments import Count, Schedule
from bilevel.oracles.points import Oracle
from bilevel.problem.sources import Rows
from bilevel.schedules import decaying
from bilevel.solvers.updates.base import Update
from bilevel.solvers.updates.descent import Descent


def triple(
    oracle: Oracle, points: Mapping[str, Tensor], inner: Rows, outer: Rows
) -> dict[str, Tensor]:
    """(D_y, D_v, D_x) at x, y and v, on these rows of g and of f.

        D_y = ∇y g,  D_v = ∇²y g v − ∇y f,  D_x = ∇x f − ∇x∇y g v

    Where the first two vanish, y = y*(x) and v = (∇²y g)⁻¹ ∇y f, and the third is ∇Φ(x). Each is
    a sum over rows, so that any estimator of one gradient serves for the three at once.

    Reference: Dagréou, Ablin, Vaiter & Moreau, NeurIPS 2022, Section 2.
    """
    x, y, v = points["x"], points["y"], points["v"]
    # One linearisation gives ∇y g, Hv and Jv; in most oracles they share the passes.
    around = oracle.linearize(x, y, inner)
    Hv, Jv = around.both(v)
    f_x, f_y = oracle.outer(x, y, outer).gradient()
    # Covectors are summed before `pull`, which may be a pass back through a network.
    return {"y": around.gradient(), "v": Hv - f_y, "x": oracle.pull(x, f_x - Jv)}


@dataclass(frozen=True, kw_only=True)
class TripleLoop(SingleLoop):
    """y, v and x move along estimates of the three, y and v in the same way.

    Args:
        inner_lr: ρ, for y and v, at most 1/L; or a schedule.
        batch: the rows that each quantity is taken on; None is all rows.
        inner: how y and v move, in place of `inner_lr`: `bilevel.updates.ImplicitDescent(ρ)` is
            stable for every penalty that the model knows.
    """

    inner_lr: float | Schedule = 0.1
    batch: Count | None = 64
    inner: Update | None = None

    own: ClassVar[float | decaying] = 0.1  # how x moves unless told otherwise

    def updates(self) -> Mapping[str, Update]:
        inner = self.inner or Descent(self.inner_lr)
        return {"y": inner, "v": inner, "x": self.moves_x(self.own)}
