"""Kernels on the rows of one matrix, in as many threads as the work is worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from bilevel.kernels import softmax, threads
from bilevel.kernels.registers import Sizes
from bilevel.models.softmax.compiled.batches import Batches
from bilevel.models.softmax.compiled.forms import Array, Form, work

_WORTH_A_THREAD = 20_000  # multiplications per class; fewer are done before another thread starts
_LINE = 64  # bytes of a cache line: a row across two of them takes a third longer
_AT_ONCE = 2**28  # multiplications per class in one call, about a second: it cannot be interrupted


class OnRows:
    """Matrices W and r are arrays (p, C); otherwise as in `bilevel.kernels.softmax`."""

    def __init__(self, X: Form, labels: Array, features: int, sizes: Sizes, dtype: Any) -> None:
        self._X, self._labels, self._sizes, self.dtype = X, labels, sizes, np.dtype(dtype)
        self._shape, self.row_work = (features, len(sizes[0])), work(X) / max(1, len(labels))
        self.no_penalty = np.zeros((features, 1), self.dtype)

    def look(self, Ws: Array, batches: Batches) -> tuple[Array, Array]:
        """`softmax.look`: P and losses, with a W for each batch."""
        rows, count = batches.rows, len(batches.rows)
        P = self.rows(count)
        losses = np.empty(count, self.dtype)
        given, rest = (self._X, rows), (P, losses, self._sizes)
        # Only read here, so a W of millions need not be copied if its rows are contiguous.
        is_close = self._sizes[0] == self._sizes[1]
        calls = []
        for part in self._parts(batches):
            here = P[:0] if is_close else self.rows(self._shape[0])
            calls.append(partial(softmax.look, *given, *part, self._labels, Ws, here, *rest))
        threads.run(calls)
        return P, losses

    def step(
        self,
        W: Array,
        batches: Batches,
        s: Array,
        c: Array,
        base: float,
        rates: Array | Sequence[float],
        path: Array | None = None,
    ) -> Array:
        """`softmax.descend`: the last W, and as many earlier ones as `path` has room for."""
        calls, outs = [], list[Array]()
        kept, steps = (columns(c), self.dtype.type(base)), np.asarray(rates, self.dtype)
        for part in self._parts(batches):
            # Each thread has its own sum: to share one, they would have to take turns.
            outs.append(self.empty(1) if path is None or outs else path)
            data = self._X, batches.rows, *part, self._labels, s
            given = steps, W, *self._room(), outs[-1], self._sizes
            calls.append(partial(softmax.descend, *data, *kept, *given))
            kept = self.no_penalty, self.dtype.type(0)  # W itself goes to the first part
        threads.run(calls)
        last: Array = _sum(outs)[-1]
        return last

    def factors(
        self,
        P: Array | None,
        Ws: Array | None,
        r: Array,
        batches: Batches,
        s: Array,
        c: Array,
        base: float,
        rates: Array | Sequence[float],
        *,
        weights: Array | None = None,
        sums: Array | None = None,
    ) -> tuple[Array, Array]:
        """`softmax.contract` with P or Ws: the last r, and the slopes along each on the way."""
        calls, outs = [], list[Array]()
        kept, steps = (columns(c), self.dtype.type(base)), np.asarray(rates, self.dtype)
        weights = steps if weights is None else weights
        added = self.empty(0) if sums is None else sums
        along = np.empty(len(batches.rows), self.dtype)
        for part in self._parts(batches):
            outs.append(self.empty(1)[0])
            here, G, R = self._room()
            there = here, P
            if Ws is not None:
                there = self.rows(len(here)), self.rows(len(R))
            at = (self.empty(0) if Ws is None else Ws), *there
            data = self._X, batches.rows, *part, self._labels, s, *at
            given = steps, weights, r, here, G, R, added, along, outs[-1], self._sizes
            calls.append(partial(softmax.contract, *data, *kept, *given))
            # c∘r and the sums do not depend on rows: the first part has handled them.
            kept, added = (self.no_penalty, self.dtype.type(0)), self.empty(0)
        threads.run(calls)
        return _sum(outs), along

    def _parts(self, batches: Batches) -> list[tuple[Array, Array]]:
        """Starts and ends for each of the threads that share the rows of a single batch."""
        starts, ends = batches.starts, batches.ends
        team = self._team(batches.longest) if len(ends) == 1 else 1
        if team == 1:
            return [(starts, ends)]
        return [(starts + a, starts + b) for a, b in threads.parts(int(ends[0] - starts[0]), team)]

    def calls(
        self, batches: Batches, *, singly: bool = False, together: bool = False
    ) -> list[slice]:
        """Which batches go into one call.

        One at a time if threads share its rows: a kernel has no way to wait for another.
        """
        # Long calls are split, so that Ctrl-C takes effect within about a second.
        count, size = len(batches.ends), int(_AT_ONCE / (1 + batches.longest * self.row_work))
        if singly or size < 1 or (self._team(batches.longest) > 1 and not together):
            size = 1
        return [slice(t, min(t + size, count)) for t in range(0, count, size)]

    def _team(self, rows: int) -> int:
        """How many threads this many rows are worth."""
        worth = int(rows * self.row_work / _WORTH_A_THREAD)
        return 1 if worth <= 1 else min(worth, threads.count())

    def _room(self) -> tuple[Array, Array, Array]:
        """`here`, G and R."""
        p = self._shape[0]
        return self.rows(p), self.rows(p, np.zeros), self.rows(softmax.BLOCK)

    def rows(self, count: int, make: Callable[..., Array] = np.empty) -> Array:
        """Memory for `count` rows, as kernels lay them out, from the start of a cache line."""
        length, more = len(self._sizes[1]), _LINE // self.dtype.itemsize
        room = make(count * length + more, self.dtype)
        first = -room.__array_interface__["data"][0] % _LINE // self.dtype.itemsize
        return room[first : first + count * length].reshape(count, length)

    def empty(self, count: int) -> Array:
        return np.empty((count, *self._shape), self.dtype)


def columns(c: Array) -> Array:
    """(p,) as (p, 1): kernels are compiled once for both."""
    return c.reshape(len(c), -1)


def _sum(parts: list[Array]) -> Array:
    """The sum of the threads' parts, always in the same order; overwrites the first."""
    for part in parts[1:]:
        parts[0] += part
    return parts[0]
