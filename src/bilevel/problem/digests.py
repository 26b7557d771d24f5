"""Digests of data: the same rows give the same few letters.

Up to 64 MB all bytes count. Of more, up to 4096 rows do (at most 16 MB), at even distances, the
first and the last among them: a change of a few rows among many may go unnoticed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bilevel.problem.sources import Source, as_tensor

_MOST_BYTES = 2**26
_SAMPLE_BYTES = 2**24
_SAMPLE_ROWS = 4096
_LETTERS = 12


def digest_of_tensor(tensor: Tensor | np.ndarray[Any, Any]) -> str:
    """Of its shape, its dtype and its numbers.

    Example:
        >>> one, same, other = torch.zeros(3), torch.zeros(3), torch.ones(3)
        >>> digest_of_tensor(one) == digest_of_tensor(same) != digest_of_tensor(other)
        True
    """
    tensor = as_tensor(tensor).detach()
    dense = tensor.layout == torch.strided
    size = tensor.element_size() * tensor.numel() if dense else 0
    some = tensor
    if size > _MOST_BYTES and tensor.ndim:
        some = tensor[_spread(len(tensor), size // len(tensor))]
    return _letters([str(tuple(tensor.shape)).encode(), *_bytes(some)])


def digest_of_rows(source: Source) -> str:
    """Of the rows that a source gives."""
    first, again = (list(_bytes(source.rows(torch.tensor([0])))) for _ in range(2))
    if first != again:
        return "unknown (a row changes from one reading to the next)"
    row = sum(map(len, first))
    whole = row * len(source) <= _MOST_BYTES
    data = source.rows(None if whole else _spread(len(source), row))
    return _letters([str(len(source)).encode(), *_bytes(data)])


def _spread(rows: int, bytes_a_row: int) -> Tensor:
    """Numbers of rows at even distances."""
    count = max(2, min(_SAMPLE_ROWS, _SAMPLE_BYTES // max(bytes_a_row, 1), rows))
    return torch.tensor([i * (rows - 1) // (count - 1) for i in range(count)])


def _bytes(data: Any) -> Iterator[bytes]:
    if isinstance(data, Tensor):
        yield str(data.dtype).encode()
        yield from _tensor_bytes(data)
    elif isinstance(data, Mapping):
        for key, part in data.items():
            yield str(key).encode()
            yield from _bytes(part)
    elif isinstance(data, tuple | list):
        for part in data:
            yield from _bytes(part)
    else:
        yield str(data).encode()


def _tensor_bytes(tensor: Tensor) -> Iterator[bytes]:
    if tensor.layout == torch.sparse_csr:
        for part in (tensor.crow_indices(), tensor.col_indices(), tensor.values()):
            yield from _tensor_bytes(part)
    else:
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        yield flat.view(torch.uint8).numpy().tobytes()


def _letters(parts: list[bytes]) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "little"))
        found.update(part)
    return found.hexdigest()[:_LETTERS]
