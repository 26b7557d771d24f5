"""The random choices of many outer steps at once, as arrays: the same rows as step by step."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from bilevel.problem.blocks import Blocks, block_numbers
from bilevel.problem.philox import FEW, KEYS, PHILOX, all_below
from bilevel.problem.sampling import Role, Streams

Array = np.ndarray[Any, Any]


class Draw(NamedTuple):
    """Batches of K steps: batch t of step k is rows[starts[k, t]:stops[k, t]].

    Args:
        counts: how many batches each step has.
        numbers, shares: if a step's batch is a block, its number and its share of all rows.
    """

    rows: Array
    starts: Array
    stops: Array
    counts: Array
    numbers: Array
    shares: Array

    def sizes(self) -> Array:
        """The number of rows of each batch, in order."""
        asked = np.arange(self.starts.shape[1]) < self.counts[:, None]
        found: Array = (self.stops - self.starts)[asked]
        return found


class Ahead:
    """What `Streams` would draw in each of `count` outer steps from `first` on."""

    def __init__(
        self, seed: int, first: int, count: int, inner_rows: int | None, outer_rows: int | None
    ) -> None:
        self._given = inner_rows, outer_rows
        self._seed, self._steps = seed, range(first, first + count)
        self._any = Streams(seed, first, inner_rows, outer_rows)

    def rows(self, role: Role, size: int | None) -> Draw:
        """A fresh batch for each step."""
        if self._vast(role, size) or isinstance(size, Blocks) or size == 1:
            return self.batches(role, size, np.ones(len(self._steps), np.int64))
        return _apart([[np.asarray(self._at(k).rows(role, size))] for k in self._steps])

    def batches(self, role: Role, size: int | None, counts: Array) -> Draw:
        """Fresh batches for each step, as many as `counts` says."""
        total, size = self._any.available(role) or 1, self._any.size(role, size)
        if size is None or self._vast(role, size):
            starts = np.zeros((len(counts), max(1, int(counts.max()))), np.int64)
            return _blocks(starts, total, total, counts)
        most = int(counts.max())
        if isinstance(size, Blocks):
            # `Streams` numbers its visits in the same way: those of a step consecutively.
            places = np.array(self._steps)[:, None] * counts[:, None] + np.arange(max(1, most))
            found = block_numbers(self._seed, (0, role), places.reshape(-1), total, size)
            return _blocks(found.reshape(places.shape) * size, size, total, counts)
        if size == 1 and most <= FEW:
            return _singles(self._words(role, max(1, most), total), counts)
        each = zip(self._steps, counts.tolist(), strict=True)
        drawn = [self._at(k).batches(role, size, count) for k, count in each]
        return _apart([[np.asarray(rows) for rows in batches] for batches in drawn])

    def block(self, role: Role, size: int | None) -> Draw:
        """A block of rows for each step."""
        if isinstance(size, Blocks) or size is None or self._vast(role, size):
            return self.batches(role, size, np.ones(len(self._steps), np.int64))
        total = self._any.available(role) or 1
        starts = self._words(role, 1, total) // size * size
        return _blocks(starts, size, total, np.ones(len(starts), np.int64))

    def below(self, bound: int) -> Array:
        """A uniform integer from {0, ..., bound - 1} for each step."""
        return self._words("truncation", 1, bound)[:, 0]

    def _vast(self, role: Role, size: int | None) -> bool:
        """Whether a batch consists of all rows."""
        return self._any.available(role) is None or self._any.size(role, size) is None

    def _at(self, step: int) -> Streams:
        return Streams(self._seed, step, *self._given)

    def _words(self, role: str, count: int, bound: int) -> Array:
        """The first single numbers of a role in each step."""
        first = FEW * KEYS[role]
        found: Array = all_below(self._shared[:, first : first + count], bound)
        return found

    @cached_property
    def _shared(self) -> Array:
        found: Array = PHILOX.shared_of(self._seed, self._steps)
        return found


def _blocks(starts: Array, size: int, total: int, counts: Array) -> Draw:
    """Batches of successive rows."""
    stops = np.minimum(starts + size, total)
    numbers, shares = starts[:, 0] // size, (stops - starts)[:, 0] / total
    return Draw(np.arange(total), starts, stops, counts, numbers, shares)


def _singles(rows: Array, counts: Array) -> Draw:
    """Batches of one row each."""
    starts = np.arange(rows.size).reshape(rows.shape)
    return Draw(rows.reshape(-1), starts, starts + 1, counts, 0 * counts, 1.0 + 0 * counts)


def _apart(drawn: list[list[Array]]) -> Draw:
    """The batches that each step has drawn, concatenated."""
    counts = np.array([len(batches) for batches in drawn])
    starts = np.zeros((len(drawn), max(1, int(counts.max()))), np.int64)
    stops, end = starts.copy(), 0
    for k, batches in enumerate(drawn):
        for t, rows in enumerate(batches):
            starts[k, t], stops[k, t] = end, (end := end + len(rows))
    rows = np.concatenate([np.empty(0, np.int64), *(rows for step in drawn for rows in step)])
    return Draw(rows, starts, stops, counts, 0 * counts, 1.0 + 0 * counts)
