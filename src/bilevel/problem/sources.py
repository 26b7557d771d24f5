"""Rows of the user's data, never changed, and copied only as far as they are asked for."""

from __future__ import annotations

import functools
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
import scipy  # its parts are loaded when first used
import torch
from torch import Tensor

from bilevel.errors import UserError, quoted
from bilevel.problem.leaves import leaves
from bilevel.problem.stored.base import StoredRows
from bilevel.problem.stored.conversion import all_finite
from bilevel.problem.stored.npy import NpyRows

Rows = Tensor | None  # the numbers of some rows, or None for all of them


@dataclass(frozen=True)
class Batch:
    """What a loss receives: the data of some rows, and the rows' numbers.

    Example:
        >>> len(Batch(torch.ones(2, 3), index=torch.tensor([4, 7])))  # rows 4 and 7
        2
    """

    data: Any
    index: Tensor

    def __len__(self) -> int:
        return len(self.index)


class Source(ABC):
    """Data with numbered rows."""

    is_fixed = True  # whether reading the same rows again gives the same data
    is_stream = False  # whether it yields batches, by `at`, and no rows by number

    @property
    def count(self) -> int | None:
        """How many rows there are; None for a stream."""
        return None if self.is_stream else len(self)

    def at(self, number: int, seed: int) -> Batch:
        """The batch of this number (from 0) of a stream."""
        raise NotImplementedError(f"{type(self).__name__} is not a stream")

    def for_rank(self, rank: int, size: int) -> Source:
        """The part of a stream that one of several processes reads."""
        raise NotImplementedError(f"{type(self).__name__} is not a stream")

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def rows(self, rows: Rows) -> Any:
        """The data of these rows (of all, for None), as the user's loss sees it."""

    def batch(self, rows: Rows) -> Batch:
        data = self.rows(rows)
        return Batch(data, torch.arange(len(self)) if rows is None else rows)

    def made_of(self) -> Any:
        """What the rows are computed from, if there are too many to read; else None."""
        return None

    def part(self, first: int, end: int) -> Source:
        """Rows first, ..., end − 1 alone, copied if the source holds them in memory."""
        return _Window(self, first, end)


class _Window(Source):
    """Some rows of a source that reads them when asked."""

    def __init__(self, source: Source, first: int, end: int) -> None:
        self._source, self._first, self._size = source, first, end - first
        self.is_fixed = source.is_fixed

    def __len__(self) -> int:
        return self._size

    def rows(self, rows: Rows) -> Any:
        wanted = torch.arange(self._size) if rows is None else rows
        return self._source.rows(wanted + self._first)


class _MapStyle(Protocol):
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Any: ...


def as_source(name: str, data: Any) -> Source:
    """Wrap a tensor, an array, a CSR matrix, stored rows, a tuple of them, or a Dataset."""
    source = _source(name, data)
    if len(source) == 0:
        raise ValueError(f"{name} has no rows: give at least one, or None for no data")
    return source


def _source(name: str, data: Any) -> Source:
    if isinstance(data, Source):
        return data
    if isinstance(data, tuple | list):
        columns = [as_source(f"{name}[{i}]", part) for i, part in enumerate(data)]
        return _Columns(name, columns, getattr(data, "_make", tuple))
    if (stored := as_stored(data)) is not None:
        return _StoredSource(stored)
    if isinstance(data, Mapping):
        parts = {key: as_source(f"{name}[{quoted(key)}]", part) for key, part in data.items()}
        return _Columns(name, [*parts.values()], lambda found: dict(zip(parts, found, strict=True)))
    if isinstance(data, np.ndarray) or hasattr(data, "to_numpy"):  # a table of numbers
        return _TensorSource(name, as_tensor(np.asarray(data)))
    if isinstance(data, Tensor):
        return _CSRSource(name, data) if data.layout == torch.sparse_csr else _dense(name, data)
    if scipy.sparse.issparse(data):
        return _CSRSource(name, torch_csr(scipy.sparse.csr_array(data)))
    numbered = isinstance(data, Sized) and hasattr(data, "__getitem__")
    if numbered and not isinstance(data, str):
        return _DatasetSource(name, cast(_MapStyle, data))
    raise TypeError(
        f"{name} must be a tensor, an array, a CSR matrix, stored rows, a tuple or dict of them, a "
        f"Dataset, a DataLoader or a function that makes batches; got {type(data).__name__}"
    )


def _dense(name: str, data: Tensor) -> Source:
    if data.layout != torch.strided:
        raise ValueError(
            f"{name} has layout {data.layout}: give dense or CSR data (.to_sparse_csr())"
        )
    return _TensorSource(name, data)


class _TensorSource(Source):
    def __init__(self, name: str, data: Tensor) -> None:
        if data.ndim == 0:
            raise ValueError(f"{name} is a single number, {data.item()}: data need rows")
        _check_finite(name, data)
        self.name, self.data = name, data.detach()

    def __len__(self) -> int:
        return len(self.data)

    def rows(self, rows: Rows) -> Tensor:
        return self.data if rows is None else self.data[rows]

    def part(self, first: int, end: int) -> Source:
        return _TensorSource(self.name, self.data[first:end].clone())


class _CSRSource(Source):
    def __init__(self, name: str, data: Tensor) -> None:
        _check_finite(name, data.values())
        self.name, self.data = name, data.detach()
        self._scipy = scipy_csr(self.data)

    def __len__(self) -> int:
        return self.data.shape[0]

    def rows(self, rows: Rows) -> Tensor:
        return self.data if rows is None else torch_csr(self._scipy[rows.numpy()])

    def part(self, first: int, end: int) -> Source:
        return _CSRSource(self.name, torch_csr(self._scipy[first:end]))


class _Columns(Source):
    """Parts of the same length, which `made` puts into a tuple, a named tuple or a dict."""

    def __init__(self, name: str, parts: list[Source], made: Callable[[list[Any]], Any]) -> None:
        if not parts:
            raise ValueError(f"{name} is an empty tuple: give rows, or None for no data")
        lengths = [len(part) for part in parts]
        if len(set(lengths)) > 1:
            raise ValueError(
                f"the parts of {name} have different numbers of rows: {lengths}, but row i is "
                "made of row i of each"
            )
        self.name, self.parts, self._made = name, parts, made
        self.is_fixed = all(part.is_fixed for part in parts)

    def __len__(self) -> int:
        return len(self.parts[0])

    def part(self, first: int, end: int) -> Source:
        return _Columns(self.name, [part.part(first, end) for part in self.parts], self._made)

    def rows(self, rows: Rows) -> Any:
        return self._made([part.rows(rows) for part in self.parts])


class _StoredSource(Source):
    """Rows in a file. All rows are read into memory: a loss may be any function of them."""

    def __init__(self, data: StoredRows) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def rows(self, rows: Rows) -> Tensor:
        return self.data.all() if rows is None else self.data.take(rows)

    def part(self, first: int, end: int) -> Source:
        return _StoredSource(self.data.part(first, end))


class _DatasetSource(Source):
    is_fixed = False  # made by the user's code, which may augment at random

    def __init__(self, name: str, data: _MapStyle) -> None:
        self.name, self.data = name, data

    def __len__(self) -> int:
        return len(self.data)

    def rows(self, rows: Rows) -> Any:
        numbers = range(len(self)) if rows is None else rows.tolist()
        items = [self.data[number] for number in numbers]
        try:
            rows_data = torch.utils.data.default_collate(items)
        except (RuntimeError, TypeError) as error:
            raise UserError(
                f"rows of {self.name} do not go together ({error}): give a DataLoader, with a "
                "collate_fn that makes batches of them"
            ) from error
        for part in leaves(rows_data):
            if isinstance(part, Tensor):
                _check_finite(self.name, part)
        return rows_data


def as_stored(data: Any) -> StoredRows | None:
    """Stored rows, or a memory map as stored rows; None for anything else."""
    if isinstance(data, np.memmap):
        return NpyRows.of_map(data)
    return data if isinstance(data, StoredRows) else None


def as_tensor(data: Any) -> Tensor:
    """A tensor that shares the memory, also of a read-only array: nothing here writes to data."""
    if isinstance(data, np.ndarray) and not data.flags.writeable:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            return torch.as_tensor(data)
    return torch.as_tensor(data)


def _check_finite(name: str, values: Tensor) -> None:
    if values.is_meta:
        raise ValueError(f"{name} is on device meta, which holds no values: load it on a real one")
    if not all_finite(values):
        count = int((~torch.isfinite(values)).sum())
        raise ValueError(f"{name} holds {count} values that are NaN or infinite: clean them first")


def scipy_csr(matrix: Tensor) -> scipy.sparse.csr_array:
    """A SciPy matrix that shares the memory."""
    parts = (matrix.values(), matrix.col_indices(), matrix.crow_indices())
    return scipy.sparse.csr_array(tuple(part.numpy() for part in parts), shape=tuple(matrix.shape))


@functools.cache
def _hush() -> None:
    """Trigger torch's only warning that CSR support is in beta, and suppress it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.eye(1).to_sparse_csr()


def torch_csr(matrix: scipy.sparse.csr_array) -> Tensor:
    """The same values as a torch CSR tensor."""
    _hush()
    if not matrix.has_canonical_format:
        matrix = matrix.copy()  # or SciPy would sort it later, in place, in the user's memory
        matrix.sum_duplicates()
    return torch.sparse_csr_tensor(
        as_tensor(matrix.indptr).long(),
        as_tensor(matrix.indices).long(),
        as_tensor(matrix.data),
        size=matrix.shape,
        check_invariants=False,
    )
