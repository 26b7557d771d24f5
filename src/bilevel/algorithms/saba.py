"""SABA: SOBA with a memory of every row, and so without noise in the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from bilevel.algorithms.contract import State, Write
from bilevel.algorithms.registry import register
from bilevel.algorithms.single_loop import Directions, SingleLoop
from bilevel.arguments import Schedule
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import CROSS, GRADIENT, HVP, OUTER, Price
from bilevel.problem.sampling import Streams
from bilevel.problem.sources import Rows
from bilevel.solvers.updates.base import Update
from bilevel.solvers.updates.descent import Descent

_INNER, _OUTER = ("g", "Hv", "Jv"), ("f_x", "f_y")


@register(
    "saba",
    paper="Dagréou, Ablin, Vaiter & Moreau, NeurIPS 2022 (SABA)",
    cost="Gc(f) 2, Gc(g) 1, JV 1, HV 1",
    demo={"inner_lr": 0.1, "outer_lr": 0.1, "batch": 1},
    steps=400,
)
@dataclass(frozen=True, kw_only=True)
class SABA(SingleLoop):
    """SOBA whose five quantities are SAGA's estimates, with constant steps.

    Of each block of rows the last value of every quantity q is kept, and with block i drawn

        q(now) ≈ q_i(now) − q_i(kept) + Σ_j w_j q_j(kept),

    w_j the block's share of the rows. The noise vanishes as the points settle, so that constant
    steps lead to the solution of a finite sum.

    Args:
        inner_lr: ρ, for y and v; a third of 1/L of the worst block is safe.
        outer_lr: γ.
        batch: rows of a block. The tables hold a row of 2 dim y + dim x numbers for each block of
            the inner rows, and dim y + dim x for each of the outer rows.

    Example:
        >>> import torch, bilevel
        >>> rows = torch.randn(50, 2, generator=torch.Generator().manual_seed(0)).double()
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y, batch: ((y - batch.data) ** 2).mean(),
        ...     inner=lambda x, y, batch: ((y - x - batch.data) ** 2).mean(),
        ...     x0=torch.ones(2).double(), y0=torch.zeros(2).double(),
        ...     outer_data=rows, inner_data=rows)
        >>> algorithm = bilevel.algorithms.SABA(inner_lr=0.1, outer_lr=0.05, batch=5)
        >>> result = bilevel.minimize(problem, algorithm, steps=1000, evaluate_every=1000)
        >>> bool(result.x.norm() < 1e-8)  # x* = 0
        True
    """

    inner_lr: float | Schedule = 0.1
    batch: int | None = 64

    def updates(self) -> Mapping[str, Update]:
        inner = Descent(self.inner_lr)
        return {"y": inner, "v": inner, "x": self.moves_x(0.1)}

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

    def directions(self, oracle: Oracle, state: State, streams: Streams) -> Directions:
        found: dict[str, Tensor] = {}
        writes: list[Write] = []
        for names, total in ((_INNER, oracle.inner_rows), (_OUTER, oracle.outer_rows)):
            # A row is drawn, and with it its block: a short last block comes up less often, and the
            # estimate has no bias.
            one = 1 if self.batch else None
            drawn = streams.rows("outer" if names is _OUTER else "inner", one)
            i = 0 if drawn is None else int(drawn[0]) // (self.batch or 1)
            rows, share = _block(i, total, self.batch)
            now = self._values(oracle, state.points, names, rows)
            for name, value in zip(names, now, strict=True):
                mean = state.tables[f"mean {name}"][0]
                change = value - state.tables[name][i]
                found[name] = mean + change
                # Written by the run, not here: states share the tables, and a step may be
                # rejected. The mean moves by the change alone: no pass over the blocks.
                at = torch.tensor([i])
                writes.append(Write(name, at, value[None]))
                writes.append(Write(f"mean {name}", at * 0, (mean + share * change)[None]))
        moves = {
            "y": found["g"],
            "v": found["Hv"] - found["f_y"],
            "x": found["f_x"] - found["Jv"],
        }
        return Directions(moves, writes=tuple(writes))

    def _values(
        self, oracle: Oracle, points: Mapping[str, Tensor], names: tuple[str, ...], rows: Rows
    ) -> tuple[Tensor, ...]:
        """The quantities of these names on a block of rows."""
        # Pulled block by block: a covector that was kept from an earlier x could not be pulled now.
        x, y = points["x"], points["y"]
        if names is _OUTER:
            f_x, f_y = oracle.outer(x, y, rows).gradient()
            return oracle.pull(x, f_x), f_y
        around = oracle.linearize(x, y, rows)
        Hv, Jv = around.both(points["v"])
        return around.gradient(), Hv, oracle.pull(x, Jv)

    @property
    def asks(self) -> Price:
        return OUTER + GRADIENT + HVP + CROSS


def _block(i: int, total: int | None, size: int | None) -> tuple[Rows, float]:
    """The rows of block i, and their share of all."""
    if total is None or size is None:
        return None, 1.0
    rows = torch.arange(i * size, min((i + 1) * size, total))
    return rows, len(rows) / total


def _blocks(total: int | None, size: int | None) -> list[Rows]:
    count = 1 if total is None or size is None else -(-total // size)
    return [_block(i, total, size)[0] for i in range(count)]
