"""Consecutive batches of rows in the form that kernels take; and the weights of their rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import expit as sigmoid
from torch import Tensor

from bilevel.models.softmax.compiled.forms import Array
from bilevel.problem.sources import Rows


class Weights(NamedTuple):
    """The weights of all rows, as a function of their `values`."""

    values: Array
    of: Callable[[Array, Array], Array]

    @staticmethod
    def equal(dtype: Any) -> Weights:
        return Weights(np.empty(0, dtype), lambda values, rows: np.ones(len(rows), values.dtype))

    @staticmethod
    def given(values: Array) -> Weights:
        return Weights(values, lambda values, rows: values[rows])

    @staticmethod
    def logits(values: Array) -> Weights:
        return Weights(values, lambda values, rows: sigmoid(values[rows]))


class Batches(NamedTuple):
    """Batch t is rows[starts[t]:ends[t]]. If each consists of all rows, they share these."""

    rows: Array
    starts: Array
    ends: Array
    longest: int

    @staticmethod
    def of(batches: Sequence[Rows], every: Array) -> Batches | None:
        """None if some but not all consist of all rows (`every`), or if there are no batches."""
        whole = [rows is None for rows in batches]
        if not batches or any(whole) != all(whole):
            return None
        if len(batches) == 1 or batches[0] is None:
            found = Batches.alone(batches[0], every)
            count = len(batches)
            return found._replace(starts=found.starts.repeat(count), ends=found.ends.repeat(count))
        # One array for all batches: a loop over them is then one call of a kernel.
        ends = np.array([0, *accumulate(map(len, batches))])  # type: ignore[arg-type]
        rows = existing(torch.cat(batches).numpy(), len(every))  # type: ignore[arg-type]
        return Batches(rows, ends[:-1], ends[1:], int((ends[1:] - ends[:-1]).max()))

    @staticmethod
    def alone(rows: Rows, every: Array) -> Batches:
        """One batch of these rows, or of all."""
        chosen = every if rows is None else existing(rows.numpy(), len(every))
        return Batches(chosen, np.zeros(1, int), np.array([len(chosen)]), len(chosen))

    def some(self, which: slice) -> Batches:
        """Some of the batches, of the same rows."""
        return self._replace(starts=self.starts[which], ends=self.ends[which])

    def together(self) -> Batches:
        """From the first row to the last, as one batch."""
        a, b = self.starts[:1], self.ends[-1:]
        return self._replace(starts=a, ends=b, longest=int(b[0] - a[0]))

    def turned(self) -> Batches:
        """The last one first."""
        return self._replace(starts=self.starts[::-1].copy(), ends=self.ends[::-1].copy())

    def shares(self, weights: Weights) -> Array:
        """The weight of each of `rows` over the size of its batch."""
        found = weights.of(weights.values, self.rows)
        if self.longest == len(self.rows):  # one batch, or all rows in each
            found /= self.longest
        else:
            sizes = self.ends - self.starts
            found /= np.repeat(sizes, sizes).astype(found.dtype)
        return found

    def sigmoid_cross(self, x: Tensor, slopes: Tensor) -> Tensor:
        """For one batch: σ'(x_i) times its rows' slopes over their number, and 0 for other rows."""
        out = torch.zeros_like(x)
        self.add_cross(x.numpy(), slopes.numpy(), out.numpy())
        return out

    def add_cross(self, x: Array, slopes: Array, out: Array) -> None:
        """The same, added to `out`; a row drawn twice counts twice."""
        a, b = int(self.starts[0]), int(self.ends[0])
        rows = self.rows[a:b]
        s = sigmoid(x[rows])
        np.add.at(out, rows, s * (1 - s) * slopes[a:b] / x.dtype.type(b - a))


def existing(rows: Array, count: int) -> Array:
    """The rows, checked to be below `count`: kernels do not check."""
    # Read as unsigned, negative numbers are large: one comparison instead of two.
    if len(rows) and rows.astype(np.uint64).max() >= count:
        wrong = next(row for row in rows if not 0 <= row < count)
        raise IndexError(f"there is no row {wrong} among {count}")
    return rows
