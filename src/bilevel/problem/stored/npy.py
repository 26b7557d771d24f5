"""Rows of a .npy file."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bilevel.durable.files import replacing
from bilevel.durable.regular import check_regular
from bilevel.errors import UserError, refusing
from bilevel.problem.stored.base import Numbers, StoredRows
from bilevel.problem.stored.conversion import as_native, tensor_dtype
from bilevel.problem.stored.row_file import FileMark, RowFile

Map = np.memmap[Any, Any]


class NpyRows(StoredRows):
    """The rows of an array in a .npy file.

    Rows drawn at random are read one by one, in the order of the file; if the file fits into the
    system's cache, this is nearly as fast as from memory. It is the best format for batches:
    `write_npy` converts other stored rows to it.

    Args:
        path: the file, as `np.save` or `np.lib.format.open_memmap` write it, in C order.
        dtype: what the numbers are converted to when read; by default their own.

    Raises:
        UserError: the file is truncated, is not a .npy file, or holds no plain numbers. Pickles
            are never loaded.

    Example:
        >>> import numpy as np, tempfile, torch
        >>> path = tempfile.mkdtemp() + "/features.npy"
        >>> np.save(path, np.arange(6.0).reshape(3, 2))
        >>> rows = NpyRows(path, dtype=torch.float32)
        >>> rows.shape, rows.take(torch.tensor([2, 0]))
        ((3, 2), tensor([[4., 5.],
                [0., 1.]]))
    """

    def __init__(self, path: str | os.PathLike[str], dtype: torch.dtype | None = None) -> None:
        self._open(_mapped(Path(path)), dtype)

    @classmethod
    def of_map(cls, array: Map) -> NpyRows | None:
        """The rows of a memory map, or of a part of one; None if a file does not hold them so.

        The rows must lie in the file one after another, and the map's values be the file's.
        """
        in_order = array.flags.c_contiguous and array.ndim and array.size
        file = array.filename if array.mode != "c" and _memory(array) else None
        if not in_order or not isinstance(file, Path | str) or not Path(file).exists():
            return None
        found = cls.__new__(cls)
        found._open(array, None)
        return found

    def _open(self, array: Map, dtype: torch.dtype | None) -> None:
        path = Path(str(array.filename))
        if not array.ndim:
            raise UserError(f"{path} holds a single number: data need rows")
        if not array.flags.c_contiguous:
            raise UserError(
                f"{path} holds an array in Fortran order, whose rows are not in one place: save it "
                "in C order, with np.save(path, np.ascontiguousarray(array))"
            )
        self.dtype = tensor_dtype(str(path), array.dtype, dtype)
        self.shape, self._stored = array.shape, array.dtype
        offset = _offset(array) if array.size else 0
        self._file = RowFile(FileMark.of(path), offset, array.nbytes // max(len(array), 1))

    def __repr__(self) -> str:
        size = "×".join(map(str, self.shape))
        return f"NpyRows({str(self._file.mark.path)!r}, {size} of {self.dtype})"

    def _read(self, numbers: Numbers) -> Tensor:
        raw = np.empty((len(numbers), *self.shape[1:]), self._stored)
        self._file.scatter(numbers, raw)
        return as_native(raw, self.dtype)

    def _read_blocks(self, first: int, end: int, size: int) -> Iterator[Tensor]:
        for start in range(first, end, size):
            raw = np.empty((min(size, end - start), *self.shape[1:]), self._stored)
            self._file.read(start, raw)
            yield as_native(raw, self.dtype)


def write_npy(path: str | os.PathLike[str], rows: StoredRows) -> NpyRows:
    """Write stored rows to a .npy file, block by block, completely or not at all.

    Example:
        >>> import numpy as np, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> np.save(folder + "/a.npy", np.arange(4, dtype=np.float32).reshape(2, 2))
        >>> from bilevel.stored import NpyRows, write_npy
        >>> write_npy(folder + "/b.npy", NpyRows(folder + "/a.npy").map(lambda a: a + 1)).all()
        tensor([[1., 2.],
                [3., 4.]])
    """
    descr = np.lib.format.dtype_to_descr(torch.empty(0, dtype=rows.dtype).numpy().dtype)
    with replacing(Path(path)) as part, part.open("wb") as file:
        header = {"descr": descr, "fortran_order": False, "shape": rows.shape}
        np.lib.format.write_array_header_1_0(file, header)
        for _, block in rows.blocks():
            file.write(block.contiguous().numpy().data)
    return NpyRows(path)


def _mapped(path: Path) -> Map:
    """The file's array, of which only the header has been read."""
    path.stat()  # a missing file raises its own error
    check_regular(path)
    # The header is Python's syntax: damage can mean anything.
    with refusing(f"{path} is not a complete .npy file of numbers", Exception):
        return np.lib.format.open_memmap(path, mode="r")


def _memory(array: Any) -> mmap.mmap | None:
    """The mapped file that holds an array's values, if there is one."""
    while isinstance(array, np.ndarray):
        array = array.base
    return array if isinstance(array, mmap.mmap) else None


def _offset(array: Map) -> int:
    """Where the array begins in the file; `array.offset` is the offset of the whole map."""
    memory = _memory(array)
    assert memory is not None
    begin = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY
    return begin + array.ctypes.data - np.frombuffer(memory, np.uint8).ctypes.data
