"""Streams: data that come batch after batch, from a DataLoader, an iterable or a generator.

A batch is determined by its number, so that a resumed run continues with the right batch, whatever
the number of workers. For a map-style Dataset, the number gives the epoch and the place in it, the
epoch gives the order, and (epoch, row) seeds what is drawn while the row is made. Where data can
only be read from the start, all earlier batches are read again, with the same draws.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset

from bilevel.errors import UserError
from bilevel.problem.chance import Chance, key
from bilevel.problem.isolation import generators_of
from bilevel.problem.sources import Batch, Rows, Source, as_source


def as_data(name: str, data: Any) -> Source:
    """A stream, or rows by number."""
    if isinstance(data, DataLoader):
        by_number = not isinstance(data.dataset, IterableDataset)
        return NumberedStream(name, data) if by_number else _of_loader(name, data)
    if isinstance(data, IterableDataset):
        return _of_loader(name, DataLoader(data, batch_size=None))
    if isinstance(data, Iterator):
        raise TypeError(
            f"{name} is a {type(data).__name__}, which can be read only once: give a function that "
            "makes it, such as lambda: iter(loader)"
        )
    if callable(data) and not hasattr(data, "__getitem__") and not isinstance(data, Source):
        return ReadStream(name, data, lambda epoch, seed: iter(data()))
    if isinstance(data, list) and any(isinstance(part, tuple | dict) for part in data):
        raise TypeError(
            f"{name} is a list of {type(data[0]).__name__}s. If they are rows, give "
            f"DataLoader({name}, batch_size=...); if they are batches, a function, such as lambda: "
            f"iter({name}); if they are columns, a tuple of tensors"
        )
    return as_source(name, data)


class Stream(Source):
    """Batch after batch, endlessly; each process of several takes its own."""

    is_fixed, is_stream = False, True

    def __init__(self, name: str, made_of: Any) -> None:
        self.name, self._made_of = name, made_of
        self._rank, self._size = 0, 1
        self._last: tuple[tuple[int, int], Batch] | None = None

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
        return self._last[1]

    @abstractmethod
    def read(self, number: int, seed: int) -> Batch:
        """The batch of this number; usually the next one is asked for next."""


class NumberedStream(Stream):
    """A DataLoader of a map-style Dataset: any batch can be read on its own."""

    def __init__(self, name: str, loader: DataLoader[Any]) -> None:
        super().__init__(name, [loader.dataset, loader.batch_size, loader.collate_fn])
        if isinstance(loader.sampler, DistributedSampler) and loader.sampler.num_replicas > 1:
            raise UserError(
                f"{name} has a DistributedSampler, but bilevel.shard already gives each process "
                "its own batches: give the DataLoader shuffle=True in its place"
            )
        self._loader = loader
        self._reader: tuple[tuple[int, int], Iterator[Any]] | None = None

    def read(self, number: int, seed: int) -> Batch:
        if self._reader is None or self._reader[0] != (number, seed):
            self._reader = (number, seed), self._from(number, seed)
        batch = next(self._reader[1])
        self._reader = (number + 1, seed), self._reader[1]
        rows, data = batch
        return Batch(data, torch.as_tensor(rows))

    def _from(self, number: int, seed: int) -> Iterator[Any]:
        given = self._loader
        return iter(
            DataLoader(
                _Keyed(given.dataset, seed),
                # Not a method of this object: for a reader that is collected in a cycle, torch
                # waits five seconds for each worker.
                batch_sampler=_Endless(partial(_order, given), number, seed),
                collate_fn=_WithRows(given.collate_fn, given.batch_sampler is None),
                **_workers(given, key(seed)),
            )
        )


def _workers(given: DataLoader[Any], number: int) -> dict[str, Any]:
    """The user's workers, and a generator: a loader that starts would draw from the global one."""
    same = ("num_workers", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context")
    generator = torch.Generator().manual_seed(number)
    return {"generator": generator, **{name: getattr(given, name) for name in same}}


def _order(given: DataLoader[Any], epoch: int, seed: int) -> list[list[Any]]:
    """The rows of an epoch's batches, as the loader's own sampler gives them."""
    # A batch sampler of the user's has its own sampler inside: the loader's is not asked.
    with _chance_of(given.sampler, given.batch_sampler).seeded(key(seed, "epoch", epoch)):
        if given.batch_sampler is None:
            return [[row] for row in given.sampler]
        return [list(rows) for rows in given.batch_sampler]


class ReadStream(Stream):
    """Data that can only be read from the start.

    Args:
        made_of: what distinguishes one stream from another.
        begin: from an epoch and the seed, makes an iterator over that epoch's batches.
    """

    def __init__(self, name: str, made_of: Any, begin: Callable[[int, int], Iterator[Any]]) -> None:
        super().__init__(name, made_of)
        self._begin, self._chance = begin, _chance_of(made_of)
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


def _of_loader(name: str, given: DataLoader[Any]) -> ReadStream:
    """A DataLoader of an IterableDataset."""

    def begin(epoch: int, seed: int) -> Iterator[Any]:
        return iter(
            DataLoader(
                given.dataset,
                batch_size=given.batch_size,
                drop_last=given.batch_size is not None and given.drop_last,
                collate_fn=given.collate_fn,
                **_workers(given, key(seed, "epoch", epoch)),
            )
        )

    return ReadStream(name, [given.dataset, given.batch_size, given.collate_fn], begin)


class _Keyed(Dataset[Any]):
    """A Dataset indexed by (epoch, row), which seeds the random draws of each row."""

    def __init__(self, dataset: Any, seed: int) -> None:
        self._dataset, self._seed = dataset, seed
        self._chance: Chance | None = None  # made where rows are read: in a worker, if there are

    def __getitems__(self, places: list[tuple[int, Any]]) -> list[tuple[Any, Any]]:
        self._chance = self._chance or _chance_of(self._dataset)
        with self._chance.seeded(0):
            return [(place[1], self._row(self._chance, *place)) for place in places]

    def _row(self, chance: Chance, epoch: int, row: Any) -> Any:
        chance.seed(key(self._seed, "row", epoch, row))
        return self._dataset[row]


class _WithRows:
    """Collates rows by the user's function, and adds their numbers."""

    def __init__(self, collate: Callable[[Any], Any], is_single: bool) -> None:
        self._collate, self._is_single = collate, is_single

    def __call__(self, items: list[tuple[Any, Any]]) -> tuple[list[Any], Any]:
        numbers, rows = [number for number, _ in items], [row for _, row in items]
        return numbers, self._collate(rows[0] if self._is_single else rows)


class _Endless(Iterable[list[tuple[int, Any]]]):
    """The (epoch, row) pairs of each batch, from a given batch on, epoch after epoch."""

    def __init__(self, order: Callable[[int, int], list[list[Any]]], first: int, seed: int) -> None:
        self._order, self._first, self._seed = order, first, seed

    def __iter__(self) -> Iterator[list[tuple[int, Any]]]:
        epoch, ahead = 0, self._first
        while True:
            batches = self._order(epoch, self._seed)
            if not batches:
                raise UserError("the DataLoader has no batch: check its sampler and drop_last")
            # Each epoch by its own length: a user's sampler may change it.
            for rows in batches[ahead:]:
                yield [(epoch, row) for row in rows]
            epoch, ahead = epoch + 1, max(0, ahead - len(batches))


def _is_empty(data: Any) -> bool:
    if isinstance(data, tuple | list | dict) and data:
        return all(map(_is_empty, data.values() if isinstance(data, dict) else data))
    return isinstance(data, torch.Tensor) and data.dim() > 0 and len(data) == 0


def _chance_of(*holders: Any) -> Chance:
    """The global generators, and those of the user's Dataset or sampler."""
    return Chance(torch.device("cpu"), generators_of(*holders)).every()
