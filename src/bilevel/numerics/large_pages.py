"""Room for long vectors: numpy asks the system for large pages, torch does not.

A fresh page is cleared when it is first touched. A vector of millions has so many small pages that
this takes about as long as a pass over it.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

_LARGE = 2**22  # bytes from which numpy does so
_DTYPES = {torch.float32: np.float32, torch.float64: np.float64}


def empty_like(vector: Tensor) -> Tensor:
    """As `torch.empty_like`, of a contiguous tensor.

    Example:
        >>> empty_like(torch.zeros(3)).shape
        torch.Size([3])
    """
    if vector.nbytes < _LARGE or vector.dtype not in _DTYPES or vector.device.type != "cpu":
        return torch.empty_like(vector)
    return torch.from_numpy(np.empty(vector.shape, _DTYPES[vector.dtype]))


def copy_of(vector: Tensor) -> Tensor:
    """As `vector.clone()`."""
    return empty_like(vector).copy_(vector)
