"""Batches of rows, one after another, as kernels take them; and the weights of their rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import exp
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bilevel.compiled.forms import Array
from bilevel.compiled.kernel import kernel
from bilevel.data import Rows


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
        sizes = [len(rows) for rows in batches]  # type: ignore[arg-type]
        ends = np.array(list(accumulate(sizes)))
        rows = batches[0] if len(batches) == 1 else torch.cat(batches)  # type: ignore[arg-type]
        return Batches(rows.numpy(), ends - sizes, ends, max(sizes))

    def sigmoid_shares(self, x: Array) -> Array:
        """σ(x_i) over the size of its batch, for each of `rows`."""
        out = np.empty(len(self.rows), x.dtype)
        _sigmoids(x, self.rows, out)
        _divide(self.starts, self.ends, out)
        return out

    def shares(self, weights: Array | None, dtype: Any) -> Array:
        """The same with weights that are given; None if all are 1."""
        out = np.ones(len(self.rows), dtype) if weights is None else weights[self.rows]
        _divide(self.starts, self.ends, out)
        return out

    def sigmoid_cross(self, x: Tensor, slopes: Tensor) -> Tensor:
        """Of one batch: σ'(x_i) times its rows' slopes over their number, and 0 for other rows."""
        out = torch.empty_like(x)
        _cross(x.numpy(), self.rows, slopes.numpy(), out.numpy())
        return out


@kernel
def _sigmoids(x: Any, rows: Any, out: Any) -> None:
    for i in range(len(rows)):
        out[i] = 1 / (1 + exp(-x[rows[i]]))


@kernel
def _divide(starts: Any, ends: Any, out: Any) -> None:
    """By the size of the batch; by that of the first, where all are the same rows."""
    last = 0
    for t in range(len(ends)):
        if starts[t] == last:
            last = ends[t]
            for i in range(starts[t], last):
                out[i] /= last - starts[t]


@kernel
def _cross(x: Any, rows: Any, slopes: Any, out: Any) -> None:
    out[:] = 0
    for t in range(len(rows)):
        s = 1 / (1 + exp(-x[rows[t]]))
        out[rows[t]] += s * (1 - s) * slopes[t] / len(rows)
