"""A checksum of a data set as it was loaded: what a result depends on, wherever the files lie."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import scipy.sparse
import torch


def checksum(data: Any) -> str:
    """The first 16 digits of the SHA-256 of all arrays in it, with their types and shapes.

    Example:
        >>> checksum({"a": np.arange(3)}) == checksum({"a": np.arange(3)}) != checksum(np.arange(3))
        True
    """
    digest = hashlib.sha256()
    for part in _parts(data):
        digest.update(part)
    return digest.hexdigest()[:16]


def _parts(data: Any) -> Iterator[bytes | memoryview]:
    if isinstance(data, torch.Tensor):
        data = data.numpy(force=True)
    if scipy.sparse.issparse(data):
        data = data.tocsr()
        data = (data.shape, data.indptr, data.indices, data.data)
    if isinstance(data, np.ndarray):
        yield f"{data.dtype} {data.shape}".encode()
        yield np.ascontiguousarray(data).data.cast("B") if data.size else b""
    elif is_dataclass(data):
        yield from _parts({field.name: getattr(data, field.name) for field in fields(data)})
    elif isinstance(data, Mapping):
        for name, inside in data.items():
            yield str(name).encode()
            yield from _parts(inside)
    elif isinstance(data, list | tuple):
        for inside in data:
            yield from _parts(inside)
    else:
        yield str(data).encode()
