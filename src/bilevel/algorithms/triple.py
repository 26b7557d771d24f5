"""The three equations that single loops follow: for y, for v and for x."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import CROSS, GRADIENT, HVP, OUTER, Price
from bilevel.problem.sources import Rows

TRIPLE: Price = OUTER + GRADIENT + HVP + CROSS


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
