"""What all stored rows have in common."""

from __future__ import annotations

import math
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bilevel.problem.stored.conversion import all_finite

Numbers = NDArray[np.int64]
_BLOCK_BYTES = 2**24  # of a block of rows: large enough for disks, small next to a process


class StoredRows(ABC):
    """Rows in a file, read on demand.

    They can be used wherever problem data can: in `Problem(inner_data=...)`, and as features or
    labels of `softmax_problem`. Reading a value that is NaN or infinite raises ValueError.

    Args:
        shape: the number of rows, and the shape of a row.
        dtype: of the tensors that are read.

    Example:
        >>> import numpy as np, tempfile
        >>> from bilevel.stored import NpyRows
        >>> path = tempfile.mkdtemp() + "/rows.npy"
        >>> np.save(path, np.arange(6.0).reshape(3, 2))
        >>> rows = NpyRows(path)
        >>> len(rows), rows.nbytes, rows.part(1, 3).all().tolist()
        (3, 48, [[2.0, 3.0], [4.0, 5.0]])
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    device = torch.device("cpu")

    @abstractmethod
    def __repr__(self) -> str: ...

    @abstractmethod
    def _read(self, numbers: Numbers) -> Tensor:
        """The rows with these numbers, all in range; in any order, repeated or empty."""

    @abstractmethod
    def _read_blocks(self, first: int, end: int, size: int) -> Iterator[Tensor]:
        """Rows first, ..., end − 1 in order, at most `size` at a time."""

    @final
    def __len__(self) -> int:
        return self.shape[0]

    @final
    @property
    def nbytes(self) -> int:
        """The size of all rows in memory."""
        return math.prod(self.shape) * self.dtype.itemsize

    @final
    def take(self, rows: Tensor) -> Tensor:
        """These rows, in this order."""
        numbers = rows.numpy().astype(np.int64, copy=False)
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(self):
            raise IndexError(
                f"rows {numbers.min()} to {numbers.max()} were requested from {self}, which has "
                f"rows 0 to {len(self) - 1}"
            )
        found = self._read(numbers)
        self._check_finite(found, numbers)
        return found

    @final
    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """All rows, block by block: (which rows, their data). A block is 16 MB or a single row."""
        start, size = 0, self._block_rows()
        for block in self._read_blocks(0, len(self), size):
            rows = range(start, start + len(block))
            self._check_finite(block, rows)
            yield slice(rows.start, rows.stop), block
            start = rows.stop

    @final
    def all(self) -> Tensor:
        """All rows, read into memory.

        Raises:
            MemoryError: they do not fit.
        """
        room = free_memory()
        if room is not None and self.nbytes > room:
            raise MemoryError(
                f"all rows of {self} take {self.nbytes / 1e9:.1f} GB, and {room / 1e9:.1f} GB of "
                "memory are free. Use an algorithm with batches (StocBiO), evaluate on fewer rows, "
                "or state the problem with softmax_problem, which reads all rows block by block."
            )
        found = torch.empty(self.shape, dtype=self.dtype)
        for rows, block in self.blocks():
            found[rows] = block
        return found

    @final
    def part(self, first: int, end: int) -> StoredRows:
        """Rows first, ..., end − 1 alone."""
        if not 0 <= first <= end <= len(self):
            raise IndexError(f"{self} has no rows {first} to {end - 1}")
        return _Part(self, first, end)

    @final
    def map(self, function: Callable[[Tensor], Tensor]) -> StoredRows:
        """These rows, transformed by `function` as they are read: scaled, with more columns, ...

        Args:
            function: from a tensor of some rows to a tensor of as many.

        Example:
            >>> import numpy as np, tempfile, torch
            >>> from bilevel.stored import NpyRows
            >>> path = tempfile.mkdtemp() + "/pixels.npy"
            >>> np.save(path, np.array([[0, 255], [51, 102]], dtype=np.uint8))
            >>> NpyRows(path, dtype=torch.float32).map(lambda rows: rows / 255).all()
            tensor([[0.0000, 1.0000],
                    [0.2000, 0.4000]])
        """
        return _Mapped(self, function)

    @final
    def _block_rows(self) -> int:
        return max(1, _BLOCK_BYTES * len(self) // max(self.nbytes, 1))

    @final
    def _check_finite(self, found: Tensor, numbers: Numbers | range) -> None:
        if not all_finite(found):
            bad = ~torch.isfinite(found).reshape(len(found), -1).all(1)
            row = numbers[int(bad.nonzero()[0, 0])]
            raise ValueError(
                f"row {row} of {self} holds a value that is NaN or infinite: clean the file first"
            )


def free_memory() -> int | None:
    """Bytes that can be had without swapping; None where the system does not tell."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    if sys.platform == "win32" or "SC_AVPHYS_PAGES" not in os.sysconf_names:
        return None
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class _Part(StoredRows):
    def __init__(self, rows: StoredRows, first: int, end: int) -> None:
        self._rows, self._first = rows, first
        self.shape, self.dtype = (end - first, *rows.shape[1:]), rows.dtype

    def __repr__(self) -> str:
        return f"rows {self._first} to {self._first + len(self) - 1} of {self._rows}"

    def _read(self, numbers: Numbers) -> Tensor:
        return self._rows._read(numbers + self._first)

    def _read_blocks(self, first: int, end: int, size: int) -> Iterator[Tensor]:
        return self._rows._read_blocks(self._first + first, self._first + end, size)


class _Mapped(StoredRows):
    def __init__(self, rows: StoredRows, function: Callable[[Tensor], Tensor]) -> None:
        self._rows, self._function = rows, function
        one = self._apply(rows.take(torch.arange(min(1, len(rows)))))
        self.shape, self.dtype = (len(rows), *one.shape[1:]), one.dtype

    def __repr__(self) -> str:
        return f"{self._rows}.map({getattr(self._function, '__name__', self._function)})"

    def _apply(self, rows: Tensor) -> Tensor:
        made: Any = self._function(rows)
        if not isinstance(made, Tensor) or made.shape[:1] != rows.shape[:1]:
            what = tuple(made.shape) if isinstance(made, Tensor) else type(made).__name__
            raise ValueError(
                f"a function that maps rows must return a tensor with as many rows: it returned "
                f"{what} for {tuple(rows.shape)}"
            )
        return made.detach()

    def _read(self, numbers: Numbers) -> Tensor:
        return self._apply(self._rows._read(numbers))

    def _read_blocks(self, first: int, end: int, size: int) -> Iterator[Tensor]:
        return map(self._apply, self._rows._read_blocks(first, end, size))
