"""Random numbers determined by a key and a counter, so that they can be drawn in any order."""

from __future__ import annotations

from threading import local
from typing import Any

import numpy as np
from numpy.random import Generator, Philox

# The roles of streams, as parts of the counter.
KEYS = {"inner": 0, "outer": 1, "hessian": 2, "cross": 3, "truncation": 4, "curvature": 5}
_SHARED = 6  # the key of the numbers that all roles share
APART = {"directions": 7}  # keys of roles without shared numbers
BLOCKS = 8  # the key of a role's order of blocks, plus that of the role
FEW = 16  # shared numbers of each role
_WORDS = FEW * len(KEYS)  # shared numbers of a step
_AHEAD = 16  # steps whose shared numbers are made at once
_LOW = np.uint64(2**32 - 1)


class _Philox(local):
    """One generator per thread, reset to a key and counter: a new one takes eight times as long."""

    def __init__(self) -> None:
        self._bits = Philox(key=0)
        self._generator = Generator(self._bits)
        self._state: Any = self._bits.state
        self._ahead: tuple[tuple[int, int] | None, list[int]] = None, []

    def at(self, key: int, counter: tuple[int, int, int, int]) -> Generator:
        inner = self._state["state"]
        inner["key"][:], inner["counter"][:] = (key % 2**64, key >> 64), counter
        self._bits.state = self._state
        return self._generator

    def shared(self, seed: int, step: int) -> list[int]:
        """The 64-bit random numbers that the roles of a step share."""
        window, place = divmod(step, _AHEAD)
        if self._ahead[0] != (seed, window):
            # A counter stands for four numbers.
            self.at(seed, (window * _AHEAD * _WORDS // 4, 0, _SHARED, 0))
            self._ahead = (seed, window), self._bits.random_raw(_AHEAD * _WORDS).tolist()
        return self._ahead[1][place * _WORDS : (place + 1) * _WORDS]

    def shared_of(self, seed: int, steps: range) -> Any:
        """The same for successive steps, a row for each."""
        self.at(seed, (steps.start * _WORDS // 4, 0, _SHARED, 0))
        return self._bits.random_raw(len(steps) * _WORDS).reshape(len(steps), _WORDS)


PHILOX = _Philox()


def below(word: int, bound: int) -> int:
    """A number from {0, ..., bound − 1} made of 64 random bits: uniform but for bound/2^64."""
    return word * bound >> 64  # the upper half of the product


def all_below(words: Any, bound: int) -> Any:
    """`below` of an array, for a bound below 2^32: the product in two halves."""
    high, low = words >> np.uint64(32), words & _LOW
    factor = np.uint64(bound)
    return ((high * factor + (low * factor >> np.uint64(32))) >> np.uint64(32)).astype(np.int64)
