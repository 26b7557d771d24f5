"""Columns of numbers in a Parquet file, side by side as a matrix."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bilevel.errors import UserError, quoted
from bilevel.problem.stored.conversion import as_native, tensor_dtype


def pyarrow_module(name: str) -> Any:
    """A module of pyarrow, or how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError('Parquet files need pyarrow: pip install "bilevel[cli]"') from error


class Columns:
    """Columns of numbers, or of lists of numbers that all have one length.

    Args:
        path: of the file, for messages.
        schema: all the columns of the file.
        chosen: some names; None for all. One name by itself gives one number per row, if the
            column has no lists.
    """

    def __init__(
        self,
        path: str,
        schema: Any,
        chosen: str | Sequence[str] | None,
        dtype: torch.dtype | None,
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
        found = np.empty((table.num_rows, sum(self._widths)), self._common)
        at = 0
        for name, width in zip(self.names, self._widths, strict=True):
            first = 0
            for part in self._parts(table.column(name), name):
                rows = part.reshape(-1, width)
                found[first : first + len(rows), at : at + width] = rows
                first += len(rows)
            at += width
        return as_native(found, self.dtype).reshape(len(found), *self.shape_of_row)

    def _parts(self, column: Any, name: str) -> Iterator[NDArray[Any]]:
        lists = pyarrow_module("pyarrow").types.is_fixed_size_list(column.type)
        for chunk in getattr(column, "chunks", [column]):
            values = chunk.flatten() if lists else chunk
            if chunk.null_count or values.null_count:
                raise UserError(
                    f"column {quoted(name)} of {self._path} has empty cells: fill them first"
                )
            yield values.to_numpy(zero_copy_only=False)

    def _field(self, schema: Any, name: str) -> tuple[Any, int | None]:
        """The NumPy dtype of a column, and the length of its lists, if it has lists."""
        if schema.names.count(name) != 1:
            known = ", ".join(map(repr, schema.names[:20]))
            raise UserError(
                f"{self._path} has {schema.names.count(name)} columns {quoted(name)}, and must "
                f"have one; there are {known}{', ...' * (len(schema.names) > 20)}"
            )
        types = pyarrow_module("pyarrow").types
        kind, width = schema.field(name).type, None
        if types.is_fixed_size_list(kind):
            kind, width = kind.value_type, kind.list_size
        if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
            raise UserError(
                f"column {quoted(name)} of {self._path} holds {schema.field(name).type}: choose "
                "columns of numbers, or of lists of numbers of one fixed length"
            )
        return kind.to_pandas_dtype(), width
