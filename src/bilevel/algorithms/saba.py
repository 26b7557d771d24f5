"""SABA: SOBA with a memory of every row, so that its noise vanishes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bilevel.algorithms.registry import register
from bilevel.algorithms.triple import TripleLoop
from bilevel.kernels.array_code import (
    Draws,
    Triple,
    block,
    minus,
    outer,
    pull,
    ridged,
    saga,
    sampled,
)
from bilevel.oracles.points import Oracle
from bilevel.problem.ahead import Ahead
from bilevel.problem.sampling import Streams
from bilevel.problem.sources import Rows

_INNER, _OUTER = ("g", "Hv", "Jv"), ("f_x", "f_y")


def _directions(
    oracle: Any, now: Triple, tables: Any, draws: Draws, numbers: Any, k: int
) -> Triple:
    x, y, v = now
    rows, i, share = block(draws.inner, k)
    # Only what is sampled is remembered: a penalty that the model knows is added as it is now.
    g, Hv, Jv = sampled(oracle, x, y, v, rows)
    g = saga(g, tables[0], tables[1], i, share)
    Hv = saga(Hv, tables[2], tables[3], i, share)
    Jv = saga(Jv, tables[4], tables[5], i, share)
    rows, i, share = block(draws.outer, k)
    f_x, f_y = outer(oracle, x, y, rows)
    # Pulled block by block: a covector that was kept from an earlier x could not be pulled now.
    f_x = saga(pull(oracle, x, f_x), tables[6], tables[7], i, share)
    f_y = saga(f_y, tables[8], tables[9], i, share)
    g, Hv, Jv = ridged(oracle, x, y, v, g, Hv, Jv)
    return Triple(minus(f_x, Jv), g, minus(Hv, f_y))


@register(
    "saba",
    paper="Dagréou, Ablin, Vaiter & Moreau, NeurIPS 2022 (SABA)",
    cost="Gc(f) 2, Gc(g) 1, JV 1, HV 1",
    demo={"inner_lr": 0.1, "outer_lr": 0.1, "batch": 1},
    steps=400,
)
@dataclass(frozen=True, kw_only=True)
class SABA(TripleLoop):
    """SOBA whose five quantities are SAGA's estimates, with constant steps.

    For each block of rows the last value of every quantity q is kept, and with block i drawn

        q(now) ≈ q_i(now) − q_i(kept) + Σ_j w_j q_j(kept),

    w_j the block's share of the rows. The noise vanishes as the points settle, so that constant
    steps lead to the solution of a finite sum.

    Args:
        inner_lr: ρ, for y and v; a third of 1/L of the worst block is safe.
        outer_lr: γ.
        batch: rows of a block. The tables hold a row of 2 dim y + dim x numbers for each block of
            the inner rows, and dim y + dim x for each of the outer rows.
        inner: how y and v move, in place of `inner_lr`: `bilevel.updates.ImplicitDescent(ρ)` is
            stable for every penalty that the model knows.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import means
        >>> algorithm = bilevel.algorithms.SABA(inner_lr=0.1, outer_lr=0.05, batch=5)
        >>> result = bilevel.minimize(means(), algorithm, steps=1000, evaluate_every=1000)
        >>> bool(result.x.norm() < 1e-8)  # x* = 0
        True
    """

    text = staticmethod(_directions)

    def tables(self, oracle: Oracle, points: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Of every block, at the start; and the means over all rows."""
        made: dict[str, Tensor] = {}
        for names, total in ((_INNER, oracle.inner_rows), (_OUTER, oracle.outer_rows)):
            # True values rather than zeros: a pass over the data, and less noise at first.
            blocks = _blocks(total, self.batch)
            values = [self._values(oracle, points, names, rows) for rows in blocks]
            shares = [1.0 if rows is None else len(rows) / (total or 1) for rows in blocks]
            for i, name in enumerate(names):
                made[name] = torch.stack([value[i] for value in values])
                made[f"mean {name}"] = made[name].new_tensor(shares) @ made[name]
        return {name: t if t.ndim == 2 else t[None] for name, t in made.items()}

    def draws(self, streams: Streams | Ahead) -> Draws:
        return Draws(*(streams.block(role, self.batch) for role in ("inner", "outer")))

    def _values(
        self, oracle: Oracle, points: Mapping[str, Tensor], names: tuple[str, ...], rows: Rows
    ) -> tuple[Tensor, ...]:
        """The quantities of these names on a block of rows."""
        x, y = points["x"], points["y"]
        if names is _OUTER:
            f_x, f_y = outer(oracle, x, y, rows)
            return pull(oracle, x, f_x), f_y
        return sampled(oracle, x, y, points["v"], rows)


def _blocks(total: int | None, size: int | None) -> list[Rows]:
    """All rows, in blocks of this size."""
    if total is None or size is None:
        return [None]
    return list(torch.split(torch.arange(total), int(size)))
