"""Random rows: seeded streams, one for each role of a batch.

Proposition 3 of the paper needs the batches of different roles to be independent. A stream is
keyed by (seed, outer step, role), so the state of a run holds no generator: a resumed run, or
another process, draws the same rows from the seed and the step. Philox, a generator with a key and
a counter, is made for that: each draw of a stream is one of its counters. The first few single
numbers of all roles share one counter, each role in its own place: for methods on single samples,
resetting the generator for each role would take longer than their arithmetic.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from typing import Any, Literal

import numpy as np
import torch
from numpy.random import Generator, Philox
from torch import Tensor

from bilevel.arguments import batch_size
from bilevel.errors import quoted
from bilevel.kernels.array_code import Block
from bilevel.problem.blocks import Blocks, block_numbers
from bilevel.problem.philox import APART, FEW, KEYS, PHILOX, below
from bilevel.problem.sources import Rows

Role = Literal["inner", "outer", "hessian", "cross", "curvature"]
_OF_INNER = ("inner", "hessian", "cross", "curvature")  # roles whose rows are those of g


@dataclass(frozen=True)
class BatchSizes:
    """How many rows a batch has, by role; None is all rows.

    Args:
        inner: S, the rows of one inner step.
        outer: D_F, the rows of the outer gradient.
        hessian: B, the rows of one Hessian-vector product.
        cross: D_G, the rows of the cross product.

    Example:
        >>> import bilevel
        >>> sizes = bilevel.BatchSizes(inner=32, hessian=128)  # all rows for the other two
        >>> bilevel.algorithms.StocBiO(inner_steps=5, inner_lr=0.1, batch=sizes).batch.hessian
        128
    """

    inner: int | None = None
    outer: int | None = None
    hessian: int | None = None
    cross: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            size = getattr(self, field.name)
            if size is not None:
                batch_size(f"the batch size for {field.name!r} (None for all rows)", size)

    @property
    def samples_outside(self) -> bool:
        """Whether the outer gradient or the cross product is on a batch."""
        return (self.outer, self.cross) != (None, None)

    @staticmethod
    def of(batch: int | Mapping[str, int | None] | BatchSizes | str | None) -> BatchSizes:
        """One size for every role, or sizes by role.

        Example:
            >>> BatchSizes.of({"inner": 8, "outer": 16})
            BatchSizes(inner=8, outer=16, hessian=None, cross=None)
        """
        if isinstance(batch, BatchSizes):
            return batch
        if isinstance(batch, Mapping):
            known = {field.name for field in fields(BatchSizes)}
            if unknown := set(batch) - known:
                raise ValueError(
                    f"unknown batch roles {sorted(unknown)}; there are {sorted(known)}"
                )
            return BatchSizes(**batch)
        if batch is not None and not isinstance(batch, numbers.Real):
            raise ValueError(
                f"batch must be a number of rows, sizes by role or None, got {quoted(batch)}"
            )
        return _of_one_size(batch)


@cache  # algorithms ask at each outer step
def _of_one_size(size: int | None) -> BatchSizes:
    return BatchSizes(size, size, size, size)


class AtMost(int):
    """A batch size that means all rows if there are no more than that.

    Example:
        >>> Streams(0, 0, 3, 3).rows("inner", AtMost(500)) is None
        True
    """


class Streams:
    """The random choices of one outer step."""

    def __init__(
        self, seed: int, step: int, inner_rows: int | None, outer_rows: int | None
    ) -> None:
        self._key = (seed, step)
        self._rows = {**dict.fromkeys(_OF_INNER, inner_rows), "outer": outer_rows}
        self._drawn = dict.fromkeys((*KEYS, *APART), 0)
        self._shared: list[int] = []
        self._used = dict.fromkeys(KEYS, 0)
        self._found: dict[Hashable, float] = {}

    @property
    def step(self) -> int:
        """k, the outer step to which these choices belong."""
        return self._key[1]

    def once(self, key: Hashable, measure: Callable[[], float]) -> float:
        """A measurement that is made once per outer step and shared by all who need it."""
        if key not in self._found:
            self._found[key] = measure()
        return self._found[key]

    def available(self, role: Role) -> int | None:
        """How many rows a batch of this role is drawn from; None if there are no data."""
        return self._rows[role]

    def size(self, role: Role, size: int | None) -> int | None:
        """The size of a batch; None if `AtMost` means all rows."""
        rows = self._rows[role]
        return None if isinstance(size, AtMost) and rows is not None and size >= rows else size

    def rows(self, role: Role, size: int | None) -> Rows:
        """A fresh batch: `size` different rows, uniform, independent of every other batch.

        All rows (None) when `size` is None, or when the loss has no data to draw from.
        """
        rows, size = self._rows[role], self.size(role, size)
        if size is None or rows is None:
            return None
        if isinstance(size, Blocks):
            return self._visits(role, rows, size, 1)[0]
        if size > rows:
            raise ValueError(
                f"a batch of {size} rows was asked for role {role!r}, but the data have only "
                f"{rows}: use a smaller batch, or None for all rows"
            )
        if size == 1:
            return _tensor(self._singles(role, rows, 1))
        generator = self._generator(role)
        return torch.from_numpy(generator.choice(rows, size, replace=False, shuffle=False))

    def batches(self, role: Role, size: int | None, count: int) -> list[Rows]:
        """`count` fresh batches at once, which is faster than one at a time."""
        rows, size = self._rows[role], self.size(role, size)
        if isinstance(size, Blocks) and rows is not None:
            return [*self._visits(role, rows, size, count)]
        if size is None or rows is None or size * size > rows:
            return [self.rows(role, size) for _ in range(count)]
        if size == 1:
            return list(_tensor(self._singles(role, rows, count)).view(count, 1).unbind())
        generator = self._generator(role)
        drawn = generator.integers(rows, size=(count, size))
        while len(repeated := np.flatnonzero(_repeats(drawn))):  # rarely: the batch is small
            drawn[repeated] = generator.integers(rows, size=(len(repeated), size))
        return list(torch.from_numpy(drawn).unbind())

    def block(self, role: Role, size: int | None) -> Block:
        """A block of `size` successive rows; the last block may be shorter."""
        total = self._rows[role]
        if size is None or total is None:
            return Block(None, 0, 1.0)
        if isinstance(size, Blocks):
            rows = self._visits(role, total, size, 1)[0]
        else:
            # The block of a row that is drawn: a short one comes up less often, so that a mean
            # over blocks is unbiased.
            rows = _successive(self._singles(role, total, 1)[0] // size, size, total)
        return Block(rows, int(rows[0]) // size, len(rows) / total)

    def of_sizes(self, role: Role, sizes: Sequence[int | None]) -> list[Rows]:
        """Fresh batches of these sizes."""
        if len(set(sizes)) == 1:
            return self.batches(role, sizes[0], len(sizes))
        return [self.rows(role, size) for size in sizes]

    def below(self, bound: int) -> int:
        """A uniform integer from {0, ..., bound - 1}: where a truncated series ends."""
        return self._singles("truncation", bound, 1)[0]

    def happens(self, probability: float) -> bool:
        """Whether an event of this probability happens; the same on all processes."""
        return self.below(2**53) < probability * 2**53

    def normal(self, count: int, size: int) -> Tensor:
        """`count` vectors of this many independent standard normal numbers, in double precision."""
        return torch.from_numpy(self._generator("directions").standard_normal((count, size)))

    def _singles(self, role: str, bound: int, count: int) -> list[int]:
        """`count` uniform integers from {0, ..., bound - 1}."""
        first = self._used[role]
        if first + count > FEW:
            drawn: list[int] = self._generator(role).integers(bound, size=count).tolist()
            return drawn
        if not self._shared:
            self._shared = PHILOX.shared(*self._key)
        self._used[role] = first + count
        at = FEW * KEYS[role] + first
        return [below(word, bound) for word in self._shared[at : at + count]]

    def _visits(self, role: Role, total: int, size: Blocks, count: int) -> list[Tensor]:
        """The next `count` blocks, in an order that changes with each pass."""
        (seed, step), number = self._key, self._drawn[role]
        self._drawn[role] += 1
        places = np.arange(step * count, (step + 1) * count)
        found = block_numbers(seed, (number, role), places, total, size)
        return [_successive(i, size, total) for i in found.tolist()]

    def _generator(self, role: str) -> Generator:
        """The generator for the next draw of a role, with room for 2^64 numbers."""
        seed, step = self._key
        number, self._drawn[role] = self._drawn[role], self._drawn[role] + 1
        key = APART[role] if role in APART else KEYS[role]
        return PHILOX.at(seed, (0, number, key, step))


def first_of(seed: int, rows: int | None, share: float) -> Rows:
    """A share of all rows, the first in a seeded order: nested for growing shares."""
    if rows is None:
        return None
    return torch.from_numpy(_order(seed, rows)[: math.ceil(share * rows)])


@lru_cache(maxsize=4)
def _order(seed: int, rows: int) -> np.ndarray[Any, Any]:
    return Generator(Philox(seed)).permutation(rows)


def _successive(block: int, size: int, total: int) -> Tensor:
    return torch.arange(block * size, min((block + 1) * size, total))


def _tensor(rows: list[int]) -> Tensor:
    return torch.from_numpy(np.array(rows, np.int64))


def _repeats(batches: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """For each batch, whether it has a row twice."""
    ordered = np.sort(batches, axis=1)
    found: np.ndarray[Any, Any] = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    return found
