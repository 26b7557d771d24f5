"""Rows of a Parquet file."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bilevel.arguments import positive_integer
from bilevel.durable.regular import check_regular
from bilevel.errors import UserError, short
from bilevel.problem.stored.base import Numbers, StoredRows
from bilevel.problem.stored.columns import Columns, pyarrow_module
from bilevel.problem.stored.row_file import FileMark

_MEMORY = 2**28


class ParquetRows(StoredRows):
    """The rows of some columns of a Parquet file.

    The unit of reading is a row group: a batch decodes each group that holds one of its rows. Those
    used last are kept, up to `memory` bytes. Rows drawn at random are fast only if the decoded
    columns fit there; larger ones should be written once to a .npy file, by `write_npy`. Reading
    all rows, block by block, is fast either way.

    Args:
        path: the file.
        columns: names of columns of numbers, or of lists of numbers of one fixed length, which are
            put side by side; all by default. One name by itself, of a column of numbers, gives
            one number per row: labels.
        dtype: what the numbers are converted to; by default one that can hold all columns.
        memory: bytes of decoded row groups to keep.

    Raises:
        UserError: the file is damaged, or a column is missing or holds no plain numbers.
        ImportError: pyarrow is not installed.

    Example:
        >>> import pyarrow, pyarrow.parquet, tempfile, torch
        >>> path = tempfile.mkdtemp() + "/table.parquet"
        >>> table = pyarrow.table({"a": [0.5, 1.5, 2.5], "b": [1.0, 2.0, 3.0], "label": [0, 1, 1]})
        >>> pyarrow.parquet.write_table(table, path, row_group_size=2)
        >>> ParquetRows(path, columns=["a", "b"]).take(torch.tensor([2, 0]))
        tensor([[2.5000, 3.0000],
                [0.5000, 1.0000]], dtype=torch.float64)
        >>> ParquetRows(path, columns="label").all()
        tensor([0, 1, 1])
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        columns: str | Sequence[str] | None = None,
        dtype: torch.dtype | None = None,
        memory: int = _MEMORY,
    ) -> None:
        self._mark, self._memory = (
            FileMark.of(Path(path).absolute()),
            positive_integer("memory", memory),
        )
        self._footer: Any = None
        check_regular(self._mark.path)
        with self._opened() as file:
            self._footer, schema = file.metadata, file.schema_arrow
        self._columns = Columns(str(path), schema, columns, dtype)
        groups = (self._footer.row_group(g) for g in range(self._footer.num_row_groups))
        self._starts = np.cumsum([0, *(group.num_rows for group in groups)])
        self.shape = (int(self._starts[-1]), *self._columns.shape_of_row)
        self.dtype = self._columns.dtype
        self._kept: OrderedDict[int, Tensor] = OrderedDict()

    def __repr__(self) -> str:
        size = "×".join(map(str, self.shape))
        return f"ParquetRows({str(self._mark.path)!r}, {size} of {self.dtype})"

    def _read(self, numbers: Numbers) -> Tensor:
        found = torch.empty((len(numbers), *self.shape[1:]), dtype=self.dtype)
        groups = np.searchsorted(self._starts, numbers, side="right") - 1
        # Those that are kept come first: decoding others would push them out.
        for group in sorted(set(groups.tolist()), key=lambda g: (g not in self._kept, g)):
            places = np.flatnonzero(groups == group)
            rows = torch.from_numpy(numbers[places] - self._starts[group])
            found[torch.from_numpy(places)] = self._group(group)[rows]
        return found

    def _read_blocks(self, first: int, end: int, size: int) -> Iterator[Tensor]:
        starts, ends = self._starts[:-1], self._starts[1:]
        touched = np.flatnonzero((starts < end) & (first < ends)).tolist()
        start = int(self._starts[touched[0]]) if touched else 0
        with self._opened() as file:
            for batch in file.iter_batches(size, touched, self._columns.names):
                wanted = slice(max(first - start, 0), max(end - start, 0))
                start += batch.num_rows
                block = self._columns.tensor(batch)[wanted]
                if len(block):
                    yield block

    def _group(self, group: int) -> Tensor:
        """A row group, decoded: the last ones used are kept."""
        if group not in self._kept:
            self._make_room(group)
            with self._opened() as file:
                table = file.read_row_group(group, self._columns.names)
            self._kept[group] = self._columns.tensor(table)
        self._kept.move_to_end(group)
        return self._kept[group]

    def _make_room(self, group: int) -> None:
        size = int(np.diff(self._starts)[group]) * self.nbytes // len(self)
        if size > self._memory:
            raise UserError(
                f"row group {group} of {self} takes {size:,} bytes, more than the memory of "
                f"{self._memory:,}: write the file with smaller row groups, give more memory, or "
                "make it a .npy file by bilevel.stored.write_npy"
            )
        while sum(kept.nbytes for kept in self._kept.values()) + size > self._memory:
            self._kept.popitem(last=False)

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        """The file; damage that pyarrow meets on the way is a UserError."""
        self._mark.check()
        parquet, path = pyarrow_module("pyarrow.parquet"), self._mark.path
        try:
            with parquet.ParquetFile(path, metadata=self._footer) as file:
                yield file
        except UserError:
            raise
        except (ValueError, OSError, pyarrow_module("pyarrow").ArrowException) as error:
            reason = short(" ".join(str(error).split()), 200)
            raise UserError(f"{path} is not a complete Parquet file: {reason}") from error
