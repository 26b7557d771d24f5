"""Batches of successive rows, which are read faster than rows from all over the data."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from bilevel.problem.philox import BLOCKS, KEYS, PHILOX

Array = np.ndarray[Any, Any]


class Blocks(int):
    """A batch size for blocks of successive rows, each of which is visited once per pass.

    The rows are cut into blocks in the order in which they are stored: shuffle them first if that
    order means something. Each pass visits the blocks in a fresh random order. If the last block
    is shorter than the others, it is drawn less often, so that all rows count equally.

    Example:
        >>> import bilevel
        >>> bilevel.algorithms.SOBA(batch=bilevel.Blocks(64)).batch
        Blocks(64)
    """

    def __repr__(self) -> str:
        return f"Blocks({int(self)})"


def block_numbers(
    seed: int, stream: tuple[int, str], places: Array, total: int, size: int
) -> Array:
    """The block at each of these places in the sequence of all passes."""
    count = -(-total // size)
    short = (total - (count - 1) * size) / size
    passes, at = np.divmod(places, count)
    found = np.empty(len(places), np.int64)
    for number in np.unique(passes):
        chosen = passes == number
        found[chosen] = _order(seed, *stream, int(number), count, short)[at[chosen]]
    return found


@lru_cache(maxsize=64)
def _order(seed: int, draw: int, role: str, number: int, count: int, short: float) -> Array:
    """The order of the blocks in one pass."""
    generator = PHILOX.at(seed, (0, draw, BLOCKS + KEYS[role], number))
    order = generator.permutation(count)
    # With this probability a short block is drawn in proportion to its rows; otherwise another
    # block takes its place, so that each of those comes up slightly more often than once.
    if count > 1 and generator.random() * (count - 1 + short) > short * count:
        order[order == count - 1] = generator.integers(count - 1)
    return order
