"""Short digests of data, to which every byte contributes."""

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
_BY_ROW, _BY_COLUMN = ("crow_indices", "col_indices"), ("ccol_indices", "row_indices")
_SPARSE = {  # the methods that give the parts of a sparse tensor
    **dict.fromkeys((torch.sparse_csr, torch.sparse_bsr), (*_BY_ROW, "values")),
    **dict.fromkeys((torch.sparse_csc, torch.sparse_bsc), (*_BY_COLUMN, "values")),
    torch.sparse_coo: ("_indices", "_values"),
}
WHOLE = "all bytes "  # prefix for larger data, of which format 2 hashed only some rows


def digest_of_tensor(tensor: Tensor | np.ndarray[Any, Any]) -> str:
    """A digest of the shape, the dtype and the values.

    Example:
        >>> one, same, other = torch.zeros(3), torch.zeros(3), torch.ones(3)
        >>> digest_of_tensor(one) == digest_of_tensor(same) != digest_of_tensor(other)
        True
    """
    data: Any = tensor
    if not isinstance(tensor, np.ndarray) or tensor.dtype.kind in "biufc":
        data = as_tensor(tensor).detach()
    is_dense = isinstance(data, np.ndarray) or data.layout == torch.strided
    large = bool(is_dense and data.nbytes > _AT_ONCE)
    return WHOLE * large + _letters([str(tuple(tensor.shape)).encode(), *_bytes(data)])


def digest_of_rows(source: Source) -> str | None:
    """A digest of a source's rows; None if they change from one reading to the next."""
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


def digest_of_data(data: Any) -> str:
    """A digest of tensors and arrays, alone or in dicts, tuples and lists."""
    return _letters(_bytes(data))


def digest_of_text(text: str) -> str:
    return _letters([text.encode(errors="surrogatepass")])


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
    if tensor.layout in _SPARSE:
        for part in _SPARSE[tensor.layout]:
            yield from _tensor_bytes(getattr(tensor, part)())
    else:
        whole = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
        # A single number counts as contiguous with any stride, but not as bytes.
        flat = whole.as_strided((whole.numel(),), (1,))
        yield memoryview(flat.view(torch.uint8).numpy())  # type: ignore[arg-type]


def _letters(*groups: Iterable[Any]) -> str:
    found = hashlib.sha256()
    for parts in groups:
        for part in parts:
            found.update(len(part).to_bytes(8, "little"))
            found.update(part)
    return found.hexdigest()[:_LETTERS]
