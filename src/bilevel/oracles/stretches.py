"""Many outer steps of a method in array code, as one plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bilevel.kernels.array_code import Function, Known
from bilevel.oracles.points import Oracle, Plan
from bilevel.oracles.prices import Price
from bilevel.problem.ahead import Array, Draw
from bilevel.problem.sources import Rows


class Moved(NamedTuple):
    """What came of a stretch.

    Args:
        points, memory, tables: as the state after it has them; the memory is that of x.
        x: before the last step.
        direction: along which x moved then.
    """

    points: dict[str, Tensor]
    memory: dict[str, Any]
    tables: dict[str, Tensor]
    x: Tensor
    direction: Tensor


@dataclass(frozen=True, eq=False)
class Stretch(Plan[Moved]):
    """Some outer steps, whose rows and rates are known beforehand.

    Args:
        text, move: array code: what a step does, and how x moves; see `bilevel.kernels.stretches`.
        points: a named tuple of vectors, x first.
        memory: of x's update. Its vectors go to `move`, and its `t` counts the steps.
        tables: of variance reduction.
        draws: a named tuple of `Draw`: the rows of all steps.
        rates: a row for each step, with a number for each point.
        numbers: a row for each step, of the method's own.
        constants: of x's update.
        kept: for each point, whether it takes what the text says as it is.
        implicit: whether the other points take the model's penalty implicitly.
        prices: what a step asks for, on the batches of a draw.
        by_steps: the same by points.
    """

    text: Function | None
    move: Function | None
    points: Any
    memory: Mapping[str, Any]
    tables: Mapping[str, Tensor]
    draws: Any
    rates: Array
    numbers: Array
    constants: Array
    kept: Array
    implicit: bool
    prices: Sequence[tuple[Price, Draw]]
    by_steps: Callable[[Oracle], Moved]

    def plainly(self, oracle: Oracle) -> Moved:
        return self.by_steps(oracle)

    def bill(self) -> list[tuple[Price, Rows]]:
        # A line for all batches of a size, not for each: there may be a million.
        return [
            (Price(*(int(calls) * a for a in price)), torch.empty(int(size)))
            for price, drawn in self.prices
            for size, calls in zip(*np.unique(drawn.sizes(), return_counts=True), strict=True)
        ]

    def compiled(self, known: Known) -> Moved:
        """All of it in one call, on copies."""
        from bilevel.kernels.stretches import Given, stretch

        assert self.text is not None
        assert self.move is not None
        points = type(self.points)(*map(_array, self.points))
        vectors = {name: _array(m) for name, m in self.memory.items() if isinstance(m, Tensor)}
        memory = np.stack([*vectors.values()]) if vectors else np.empty((0, 1), points.x.dtype)
        tables = tuple(map(_array, self.tables.values())) or (np.empty((0, 1), points.x.dtype),)
        shares = (drawn.shares.astype(points.x.dtype) for drawn in self.draws)
        each = zip(self.draws, shares, strict=True)
        draws = type(self.draws)(*(drawn._replace(shares=s) for drawn, s in each))
        count, before = len(self.rates), self.memory.get("t", 0)
        own = self.rates, self.numbers, self.constants, self.kept, self.implicit, before
        x, y = np.zeros_like(points.x), np.zeros_like(points.y)
        spaces = tuple(like.copy() for like in (y, y, x, x, y, y))
        direction = x.copy()
        given = Given(points, memory, tables, draws, *own, spaces, known.own(), direction)
        how = self.text, self.move, known, given
        stretch(*how, 0, count - 1)
        # Where the last direction was taken: what a look at the end is about.
        x = points.x.copy()
        stretch(*how, count - 1, count)
        changed = dict(zip(vectors, memory, strict=True))
        after = {"t": before + count} if "t" in self.memory else {}
        return Moved(
            _tensors(points._asdict()),
            {**self.memory, **after, **_tensors(changed)},
            _tensors(dict(zip(self.tables, tables, strict=False))),
            *map(torch.from_numpy, (x, direction)),
        )


def _array(vector: Tensor) -> Array:
    found: Array = vector.numpy().copy()
    return found


def _tensors(arrays: Mapping[str, Array]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(array) for name, array in arrays.items()}
