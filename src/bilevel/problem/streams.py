"""Streams: data that come batch after batch.

A batch is determined by its number, so that a resumed run continues with the right batch.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import torch

from bilevel.errors import UserError
from bilevel.problem.chance import Chance, key
from bilevel.problem.isolation import generators_of
from bilevel.problem.sources import Batch, Rows, Source
from bilevel.problem.stored.conversion import all_finite


class Stream(Source):
    """Batch after batch, endlessly; each process of several takes its own."""

    is_fixed, is_stream = False, True

    def __init__(self, name: str, made_of: Any) -> None:
        self.name, self._made_of = name, made_of
        self._rank, self._size = 0, 1
        self._last: tuple[tuple[int, int], Batch] | None = None
        self.broken: int | None = None  # the last batch read that held NaN or infinite values

    def __len__(self) -> int:
        raise TypeError(f"{self.name} is a stream, whose rows cannot be counted")

    def rows(self, rows: Rows) -> Any:
        raise ValueError(
            f"rows of {self.name} were asked for by number, but it is a stream: give a map-style "
            "Dataset or tensors in its place"
        )

    def made_of(self) -> Any:
        return self._made_of

    def for_rank(self, rank: int, size: int) -> Source:
        """Every size-th batch."""
        own = copy.copy(self)
        own._rank, own._size, own._last = rank, size, None
        return own

    def at(self, number: int, seed: int) -> Batch:
        number = number * self._size + self._rank
        # The same batch may be asked for again, when f is evaluated between two steps.
        if self._last is None or self._last[0] != (number, seed):
            self._last = (number, seed), self.read(number, seed)
            if _is_empty(self._last[1].data):
                raise UserError(f"batch {number} of {self.name} has no rows: leave empty ones out")
            # Not an error: a mask may hold them, or missing values.
            if not _is_finite(self._last[1].data):
                self.broken = number
        return self._last[1]

    @abstractmethod
    def read(self, number: int, seed: int) -> Batch:
        """The batch of this number; usually the next one is asked for next."""


class ReadStream(Stream):
    """Data that can only be read from the start.

    Args:
        made_of: what distinguishes one stream from another.
        begin: from an epoch and the seed, makes an iterator over that epoch's batches.
    """

    def __init__(self, name: str, made_of: Any, begin: Callable[[int, int], Iterator[Any]]) -> None:
        super().__init__(name, made_of)
        self._begin, self._chance = begin, chance_of(made_of)
        self._place, self._seed = 0, -1
        self._batches: Iterator[Any] = iter(())

    def read(self, number: int, seed: int) -> Batch:
        if seed != self._seed or number < self._place:
            self._place, self._seed, self._batches = 0, seed, _batches(self.name, self._begin, seed)
        while True:
            # Earlier batches are read again: only so is this the batch that would have come.
            with self._chance.seeded(key(seed, "batch", self._place)):
                data = next(self._batches)
            self._place += 1
            if self._place > number:
                return Batch(data, torch.arange(0))  # its rows have no numbers


def _batches(name: str, begin: Callable[[int, int], Iterator[Any]], seed: int) -> Iterator[Any]:
    """Epoch after epoch."""
    epoch = 0
    while True:
        empty = True
        for batch in begin(epoch, seed):
            empty = False
            yield batch
        if empty:
            raise UserError(
                f"{name} gave no batch: give a function that makes a fresh iterator each time, "
                "not one that returns an exhausted iterator"
            )
        epoch += 1


def _is_finite(data: Any) -> bool:
    if isinstance(data, tuple | list | dict):
        return all(map(_is_finite, data.values() if isinstance(data, dict) else data))
    return not isinstance(data, torch.Tensor) or all_finite(data)


def _is_empty(data: Any) -> bool:
    if isinstance(data, tuple | list | dict) and data:
        return all(map(_is_empty, data.values() if isinstance(data, dict) else data))
    return isinstance(data, torch.Tensor) and data.dim() > 0 and len(data) == 0


def chance_of(*holders: Any) -> Chance:
    """The global generators, and those of the user's Dataset or sampler."""
    return Chance(torch.device("cpu"), generators_of(*holders)).every()
