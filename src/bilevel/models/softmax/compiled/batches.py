"""Batches of rows, one after another, as kernels take them; and the weights of their rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import exp
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bilevel.kernels.kernel import kernel
from bilevel.models.softmax.compiled.forms import Array
from bilevel.problem.sources import Rows

_EQUAL, _GIVEN, _LOGITS = 0, 1, 2


class Weights(NamedTuple):
    """Of all rows: as they are, or as σ of `values`; 1 each, if there are none."""

    kind: int
    values: Array

    @staticmethod
    def equal(dtype: Any) -> Weights:
        return Weights(_EQUAL, np.empty(0, dtype))

    @staticmethod
    def given(values: Array) -> Weights:
        return Weights(_GIVEN, values)

    @staticmethod
    def logits(values: Array) -> Weights:
        return Weights(_LOGITS, values)


class Batches(NamedTuple):
    """Batch t is rows[starts[t]:ends[t]]. Where each is of all rows, they are the same ones."""

    rows: Array
    starts: Array
    ends: Array
    longest: int

    @staticmethod
    def of(batches: Sequence[Rows], every: Array) -> Batches | None:
        """None if some, but not all, are of all rows (`every` one of them), or there are none."""
        if not batches:
            return None
        if batches[0] is None:
            count, n = len(batches), len(every)
            if any(rows is not None for rows in batches):
                return None
            return Batches(every, np.zeros(count, int), np.full(count, n), n)
        if any(rows is None for rows in batches):
            return None
        sizes = [rows.numel() for rows in batches]  # type: ignore[union-attr]
        rows = batches[0] if len(batches) == 1 else torch.cat(batches)  # type: ignore[arg-type]
        ends = np.array([0, *accumulate(sizes)])
        chosen = existing(rows.numpy(), len(every))
        return Batches(chosen, ends[:-1], ends[1:], max(sizes))

    def part(self, which: slice) -> tuple[Batches, slice]:
        """Some that follow one another; and where their rows are among all."""
        a, b = int(self.starts[which][0]), int(self.ends[which][-1])
        starts, ends = self.starts[which] - a, self.ends[which] - a
        return Batches(self.rows[a:b], starts, ends, self.longest), slice(a, b)

    def shares(self, weights: Weights) -> Array:
        """The weight of each of `rows` over the size of its batch."""
        out = np.empty(len(self.rows), weights.values.dtype)
        fill(weights, self.rows, self.starts, self.ends, out)
        return out

    def sigmoid_cross(self, x: Tensor, slopes: Tensor) -> Tensor:
        """Of one batch: σ'(x_i) times its rows' slopes over their number, and 0 for other rows."""
        out = torch.empty_like(x)
        numbers = out.numpy()
        numbers[:] = 0
        add_cross(x.numpy(), self.rows, slopes.numpy(), 1, numbers)
        return out


def existing(rows: Array, count: int) -> Array:
    """The rows, if there are such among so many: kernels do not look."""
    if (wrong := _outside(rows, count)) >= 0:
        raise IndexError(f"there is no row {rows[wrong]} among {count}")
    return rows


@kernel
def _outside(rows: Any, count: int) -> int:
    """The place of the first number that is no row; −1 if there is none."""
    for i in range(len(rows)):
        if rows[i] < 0 or rows[i] >= count:
            return i
    return -1


@kernel
def fill(weights: Any, rows: Any, starts: Any, ends: Any, out: Any) -> None:
    """The weight of each row over the size of its batch; only the first one's if all are it."""
    last = 0
    for t in range(len(ends)):
        if starts[t] == last:
            last = ends[t]
            for i in range(starts[t], last):
                s = out.dtype.type(1)
                if weights.kind == _GIVEN:
                    s = weights.values[rows[i]]
                elif weights.kind == _LOGITS:
                    s = 1 / (1 + exp(-weights.values[rows[i]]))
                out[i] = s / (last - starts[t])


@kernel
def add_cross(x: Any, rows: Any, slopes: Any, factor: Any, out: Any) -> None:
    """Add `factor` times σ'(x_i) times the rows' slopes over their number."""
    for t in range(len(rows)):
        s = 1 / (1 + exp(-x[rows[t]]))
        out[rows[t]] += factor * s * (1 - s) * slopes[t] / len(rows)
