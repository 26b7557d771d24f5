"""Rows of equal size, stored consecutively in a file and read by their numbers.

A memory map would do the same with less code. But the pages that it touches count as resident, the
system reads far more around each of them, and it waits for one page before it requests the next.
Here the system is told of all rows of a batch before the first is read: from a file that is not in
its cache, random rows come several times as fast.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bilevel.errors import UserError

_AT_ONCE = 512  # rows read by one call; systems allow 1024
Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class FileMark:
    """What changes when a file is written to or replaced."""

    path: Path
    size: int
    inode: int
    written: int

    @staticmethod
    def of(path: Path) -> FileMark:
        found = path.stat()
        return FileMark(path, found.st_size, found.st_ino, found.st_mtime_ns)

    def check(self) -> None:
        """Raise UserError if the file is no longer the same."""
        try:
            found = FileMark.of(self.path)
        except OSError as error:
            raise UserError(f"{self.path} is gone ({error.strerror}): put it back") from error
        if found != self:
            raise UserError(
                f"{self.path} was changed while it was in use: leave the file alone during a run, "
                "and start over"
            )


@dataclass(frozen=True)
class RowFile:
    """`row_bytes` per row, from `offset` on.

    The file is opened for each batch, which costs little by comparison. So nothing has to be
    closed, copies can be sent to other processes, and a changed file is noticed.
    """

    mark: FileMark
    offset: int
    row_bytes: int

    def scatter(self, numbers: NDArray[np.int64], into: NDArray[Any]) -> None:
        """Read row numbers[i] into into[i], in the order of the file, adjacent rows in one call."""
        if not into.size:
            return
        order = np.argsort(numbers, kind="stable")
        ordered, rows = numbers[order], list(into.reshape(len(into), -1).view(np.uint8))
        breaks = np.flatnonzero(np.diff(ordered) != 1) + 1
        firsts = np.union1d(breaks, np.arange(0, len(order), _AT_ONCE))
        starts, ends = self._at(ordered[firsts]).tolist(), [*firsts[1:].tolist(), len(order)]
        sorted_rows = [rows[place] for place in order.tolist()]
        runs = [
            (start, sorted_rows[a:b], (b - a) * self.row_bytes)
            for start, a, b in zip(starts, firsts.tolist(), ends, strict=True)
        ]
        with self._opened() as file:
            for start, _, size in runs:
                _announce(file, start, size)
            for start, run, size in runs:
                if _read(file, start, run) != size:
                    self._fill(file, start, run)

    def read(self, first: int, into: NDArray[Any]) -> None:
        """Fill `into` with rows from `first` on, and announce those that follow."""
        with self._opened() as file:
            _announce(file, self._at(first), 2 * into.nbytes)
            self._fill(file, self._at(first), [into.reshape(-1).view(np.uint8)])

    def _at(self, row: Any) -> Any:
        return self.offset + row * self.row_bytes

    @contextmanager
    def _opened(self) -> Iterator[int]:
        self.mark.check()
        file = os.open(self.mark.path, os.O_RDONLY | _BINARY)
        try:
            yield file
        finally:
            os.close(file)

    def _fill(self, file: int, start: int, buffers: list[Bytes]) -> None:
        """Fill the buffers one by one: a call may read less than requested."""
        for buffer in buffers:
            done = 0
            while done < len(buffer):
                got = _read(file, start + done, [buffer[done:]])
                if not got:
                    raise UserError(f"{self.mark.path} ends before byte {start + len(buffer)}")
                done += got
            start += len(buffer)


if sys.platform == "win32":
    _BINARY = os.O_BINARY

    def _read(file: int, start: int, into: list[Bytes]) -> int:
        os.lseek(file, start, os.SEEK_SET)
        got = np.frombuffer(os.read(file, len(into[0])), np.uint8)
        into[0][: len(got)] = got
        return len(got)
else:
    _BINARY = 0

    def _read(file: int, start: int, into: list[Bytes]) -> int:
        return os.preadv(file, into, start)  # type: ignore[arg-type]  # arrays are buffers


def _announce(file: int, start: int, size: int) -> None:
    """Ask the system to start reading, if it supports that."""
    if sys.platform == "linux":
        os.posix_fadvise(file, start, size, os.POSIX_FADV_WILLNEED)
