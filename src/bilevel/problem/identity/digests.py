"""Digests of data: the same numbers give the same few letters, and every byte counts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bilevel.problem.sources import Source, as_tensor

_AT_ONCE = 2**26  # bytes of rows that are read together
_LETTERS = 12
WHOLE = "all bytes "  # before digests of larger data: format 2 looked at some of their rows only


def digest_of_tensor(tensor: Tensor | np.ndarray[Any, Any]) -> str:
    """Of its shape, its dtype and its numbers.

    Example:
        >>> one, same, other = torch.zeros(3), torch.zeros(3), torch.ones(3)
        >>> digest_of_tensor(one) == digest_of_tensor(same) != digest_of_tensor(other)
        True
    """
    data: Any = tensor
    if not isinstance(tensor, np.ndarray) or tensor.dtype.kind in "biufc":
        data = as_tensor(tensor).detach()
    large = data.nbytes > _AT_ONCE if isinstance(data, np.ndarray) else _size(data) > _AT_ONCE
    return WHOLE * large + _letters([str(tuple(tensor.shape)).encode(), *_bytes(data)])


def digest_of_rows(source: Source) -> str | None:
    """Of the rows that a source gives; None if they change from one reading to the next."""
    first, again = (
        [bytes(part) for part in _bytes(source.rows(torch.tensor([0])))] for _ in range(2)
    )
    if first != again:
        return None
    row, rows = sum(map(len, first)), len(source)
    count = str(rows).encode()
    if row * rows <= _AT_ONCE:
        return _letters([count, *_bytes(source.rows(None))])
    step = max(1, _AT_ONCE // row)
    chunks = (torch.arange(i, min(i + step, rows)) for i in range(0, rows, step))
    return WHOLE + _letters([count], (part for c in chunks for part in _bytes(source.rows(c))))


def digest_of_text(text: str) -> str:
    return _letters([text.encode(errors="surrogatepass")])


def _size(tensor: Tensor) -> int:
    return tensor.element_size() * tensor.numel() if tensor.layout == torch.strided else 0


def _bytes(data: Any) -> Iterator[Any]:
    if isinstance(data, Tensor):
        yield str(data.dtype).encode()
        yield from _tensor_bytes(data)
    elif isinstance(data, np.ndarray):  # of text, dates or records
        yield str(data.dtype).encode()
        yield data.tobytes()
    elif isinstance(data, Mapping):
        for key, part in data.items():
            yield str(key).encode()
            yield from _bytes(part)
    elif isinstance(data, tuple | list):
        for part in data:
            yield from _bytes(part)
    else:
        yield str(data).encode()


def _tensor_bytes(tensor: Tensor) -> Iterator[Any]:
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        for part in (tensor.crow_indices(), tensor.col_indices(), tensor.values()):
            yield from _tensor_bytes(part)
    elif tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        for part in (tensor.ccol_indices(), tensor.row_indices(), tensor.values()):
            yield from _tensor_bytes(part)
    elif tensor.layout == torch.sparse_coo:
        for part in (tensor._indices(), tensor._values()):
            yield from _tensor_bytes(part)
    else:
        flat = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
        yield memoryview(flat.view(torch.uint8).numpy())  # type: ignore[arg-type]


def _letters(*groups: Iterable[Any]) -> str:
    found = hashlib.sha256()
    for parts in groups:
        for part in parts:
            found.update(len(part).to_bytes(8, "little"))
            found.update(part)
    return found.hexdigest()[:_LETTERS]
