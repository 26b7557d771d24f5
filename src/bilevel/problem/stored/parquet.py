"""Rows of a Parquet file."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bilevel.arguments import positive_integer
from bilevel.discovery import import_extra
from bilevel.durable.regular import check_regular
from bilevel.errors import UserError, quoted, refusing
from bilevel.problem.stored.base import Numbers, StoredRows
from bilevel.problem.stored.conversion import as_native, tensor_dtype
from bilevel.problem.stored.row_file import FileMark

_MEMORY = 2**28
_pyarrow = partial(import_extra, need="Parquet files need pyarrow", extra="cli")


class ParquetRows(StoredRows):
    """The rows of some columns of a Parquet file.

    The unit of reading is a row group: a batch decodes each group that holds one of its rows. The
    most recently used groups are kept, up to `memory` bytes. Random rows are fast only if the
    decoded columns fit there; larger data should be written once to a .npy file, by `write_npy`.
    Reading all rows, block by block, is fast either way.

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
        self._mark = FileMark.of(Path(path).absolute())
        self._memory = positive_integer("memory", memory)
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
        # Groups that are kept come first: decoding others would evict them.
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
        """A decoded row group; the most recently used ones are kept."""
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
        """The open file; damage that pyarrow meets becomes a UserError."""
        self._mark.check()
        parquet, path = _pyarrow("pyarrow.parquet"), self._mark.path
        damage = ValueError, OSError, _pyarrow("pyarrow").ArrowException
        with (
            refusing(f"{path} is not a complete Parquet file", *damage),
            parquet.ParquetFile(path, metadata=self._footer) as file,
        ):
            yield file


class Columns:
    """Columns of numbers, or of lists of numbers of one length, side by side as a matrix.

    Args:
        path: of the file, for messages.
        schema: all the columns of the file.
        chosen: some names; None for all. One name by itself gives one number per row, if the
            column has no lists.
    """

    def __init__(
        self, path: str, schema: Any, chosen: str | Sequence[str] | None, dtype: torch.dtype | None
    ) -> None:
        self._path = path
        self.names = [chosen] if isinstance(chosen, str) else list(chosen or schema.names)
        fields = [self._field(schema, name) for name in self.names]
        self._common = np.result_type(*(kind for kind, _ in fields))
        self.dtype = tensor_dtype(path, self._common, dtype)
        self._widths = [width or 1 for _, width in fields]
        one_number = isinstance(chosen, str) and fields[0][1] is None
        self.shape_of_row = () if one_number else (sum(self._widths),)

    def tensor(self, table: Any) -> Tensor:
        """The rows of a table or a record batch."""
        widths = zip(self.names, self._widths, strict=True)
        parts = [self._numbers(table.column(n), n).reshape(-1, width) for n, width in widths]
        found = np.concatenate(parts, axis=1, dtype=self._common)
        return as_native(found, self.dtype).reshape(len(found), *self.shape_of_row)

    def _numbers(self, column: Any, name: str) -> NDArray[Any]:
        whole = column.combine_chunks() if hasattr(column, "chunks") else column
        lists = _pyarrow("pyarrow").types.is_fixed_size_list(column.type)
        values = whole.flatten() if lists else whole
        if whole.null_count or values.null_count:
            raise UserError(
                f"column {quoted(name)} of {self._path} has empty cells: fill them first"
            )
        found: NDArray[Any] = values.to_numpy(zero_copy_only=False)
        return found

    def _field(self, schema: Any, name: str) -> tuple[Any, int | None]:
        """The NumPy dtype of a column, and the length of its lists, if it has lists."""
        if schema.names.count(name) != 1:
            known = ", ".join(map(repr, schema.names[:20]))
            raise UserError(
                f"{self._path} has {schema.names.count(name)} columns {quoted(name)}, and must "
                f"have one; there are {known}{', ...' * (len(schema.names) > 20)}"
            )
        types = _pyarrow("pyarrow").types
        kind, width = schema.field(name).type, None
        if types.is_fixed_size_list(kind):
            kind, width = kind.value_type, kind.list_size
        if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
            raise UserError(
                f"column {quoted(name)} of {self._path} holds {schema.field(name).type}: choose "
                "columns of numbers, or of lists of numbers of one fixed length"
            )
        return kind.to_pandas_dtype(), width
