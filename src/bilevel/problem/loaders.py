"""What a DataLoader, an iterable or a generator gives, as a stream.

Its batches are the same whatever the number of workers. For a map-style Dataset, the number of a
batch gives the epoch and the place in it, the epoch gives the order, and (epoch, row) seeds what is
drawn while the row is made: if the sampler repeats a row within an epoch, also how often it came
before. Where data can only be read from the start, all earlier batches are read again, with the
same draws.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import count, islice
from typing import Any, NamedTuple

import scipy
import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    get_worker_info,
)

from bilevel.errors import UserError
from bilevel.problem.chance import Chance, key
from bilevel.problem.isolation import datasets_of
from bilevel.problem.sources import Batch, Source, as_source
from bilevel.problem.stored.base import StoredRows
from bilevel.problem.streams import ReadStream, Stream, chance_of

_AT_ONCE = 1000  # batches whose rows are asked for together: a sampler may be endless


def as_data(name: str, data: Any) -> Source:
    """A stream, or rows by number."""
    if isinstance(data, DataLoader):
        if type(data).__iter__ is not DataLoader.__iter__:  # a kind of its own changes the batches
            return ReadStream(name, data, lambda epoch, seed: iter(data))
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
    if _is_read_anew(data):  # an object that wraps a loader
        return ReadStream(name, data, lambda epoch, seed: iter(data))
    if isinstance(data, list) and any(isinstance(part, tuple | dict) for part in data):
        raise TypeError(
            f"{name} is a list of {type(data[0]).__name__}s. If they are rows, give "
            f"DataLoader({name}, batch_size=...); if they are batches, a function, such as lambda: "
            f"iter({name}); if they are columns, a tuple of tensors"
        )
    return as_source(name, data)


def _is_read_anew(data: Any) -> bool:
    known = (
        isinstance(data, Source | StoredRows | set | frozenset)
        or hasattr(data, "__getitem__")
        or scipy.sparse.issparse(data)
    )
    return isinstance(data, Iterable) and not known


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
        rows, data = next(self._reader[1])
        self._reader = (number + 1, seed), self._reader[1]
        return Batch(data, _numbers(rows))

    def _from(self, number: int, seed: int) -> Iterator[Any]:
        given = self._loader
        return iter(
            DataLoader(
                _Keyed(given.dataset, seed),
                # Not with this object: for a reader that is collected in a cycle, torch waits five
                # seconds for each worker.
                batch_sampler=_Endless(given, number, seed),
                collate_fn=_WithRows(given.collate_fn, given.batch_sampler is None),
                **_workers(given, key(seed)) | {"worker_init_fn": _Begins(given.worker_init_fn)},
            )
        )


def _workers(given: DataLoader[Any], number: int) -> dict[str, Any]:
    """The user's workers, and a generator: a loader that starts would draw from the global one."""
    same = ("num_workers", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context")
    generator = torch.Generator().manual_seed(number)
    how = {name: getattr(given, name) for name in (*same, "prefetch_factor")}
    return {"generator": generator, **how}


def _numbers(rows: list[Any]) -> torch.Tensor:
    with suppress(TypeError, ValueError):  # a sampler may name rows by texts
        return torch.as_tensor(rows)
    return torch.arange(0)


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


class _Place(NamedTuple):
    """A row as it is asked for: in which epoch, and how often it has come before in that epoch."""

    epoch: int
    row: Any
    before: int


class _Keyed(Dataset[Any]):
    """A Dataset indexed by place, which seeds the random draws of each row."""

    def __init__(self, dataset: Any, seed: int) -> None:
        self.dataset, self._seed = dataset, seed
        self._chance: Chance | None = None  # made where rows are read: in a worker, if there are

    def __getitems__(self, places: list[_Place]) -> list[tuple[Any, Any]]:
        self._chance = self._chance or chance_of(self.dataset)
        with self._chance.seeded(0):
            return [(place.row, self._row(self._chance, *place)) for place in places]

    def _row(self, chance: Chance, epoch: int, row: Any, before: int) -> Any:
        chance.seed(key(self._seed, "row", epoch, row, *([before] if before else [])))
        return self.dataset[row]


class _Begins:
    """What a worker does first, with the user's Dataset where torch has told it of ours."""

    def __init__(self, own: Callable[[int], Any] | None) -> None:
        self._own = own

    def __call__(self, worker: int) -> None:
        about: Any = get_worker_info()
        object.__setattr__(about, "dataset", about.dataset.dataset)  # it refuses a plain assignment
        if self._own is not None:
            self._own(worker)


class _WithRows:
    """Collates rows by the user's function, and adds their numbers."""

    def __init__(self, collate: Callable[[Any], Any], is_single: bool) -> None:
        self._collate, self._is_single = collate, is_single

    def __call__(self, items: list[tuple[Any, Any]]) -> tuple[list[Any], Any]:
        numbers, rows = [number for number, _ in items], [row for _, row in items]
        if not self._is_single:
            return numbers, self._collate(rows)
        # What a sampler gives for a batch that is not collated may be a list of rows.
        return numbers[0] if isinstance(numbers[0], list) else numbers, self._collate(rows[0])


class _Endless(Iterable[list[_Place]]):
    """The places of each batch, from a given batch on, epoch after epoch."""

    def __init__(self, given: DataLoader[Any], first: int, seed: int) -> None:
        # Copies: the user's own may count their epochs, or shuffle what they hold.
        self._sampler, self._batches = _copied(given.sampler, given.batch_sampler)
        self._chance = chance_of(self._sampler, self._batches)
        self._first, self._seed = first, seed

    def __iter__(self) -> Iterator[list[_Place]]:
        number = 0
        for epoch in count():
            begun, came = number, Counter[str]()
            for rows in self._epoch(epoch):
                places = list[_Place]()
                for row in rows:
                    places.append(_Place(epoch, row, came[repr(row)]))
                    came[repr(row)] += 1
                if number >= self._first:
                    yield places
                number += 1
            if number == begun:
                raise UserError("the DataLoader has no batch: check its sampler and drop_last")

    def _epoch(self, epoch: int) -> Iterator[list[Any]]:
        """The rows of its batches, as the loader's own sampler gives them."""
        for each in (self._sampler, self._batches):
            if hasattr(each, "set_epoch"):  # what a loop by hand would do
                each.set_epoch(epoch)
        for part in count():
            number = key(self._seed, "epoch", epoch, *([part] if part else []))
            with self._chance.seeded(number):
                if part == 0:
                    # A batch sampler of the user's has its own sampler inside.
                    batches = iter(self._sampler if self._batches is None else self._batches)
                found = list(islice(batches, _AT_ONCE))
            yield from ([row] for row in found) if self._batches is None else map(list, found)
            if len(found) < _AT_ONCE:
                return


def _copied(*samplers: Any) -> Any:
    """Without the Datasets that they may hold."""
    with suppress(Exception):  # what cannot be copied is used itself
        return copy.deepcopy(samplers, {id(data): data for data in datasets_of(*samplers)})
    return samplers
