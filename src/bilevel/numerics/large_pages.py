"""Memory for long vectors: numpy asks the system for large pages, torch does not; it is reused.

A fresh page is cleared when it is first touched. A vector of millions has so many small pages that
this takes about as long as a pass over it; large pages are slow to find when memory is short. So
the memory of the last few vectors is reused once nothing refers to them.
"""

from __future__ import annotations

import sys
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor

LARGE = 2**22  # bytes from which numpy does so
_KEPT = 4  # the vectors whose memory is kept: a step has about that many at a time
_DTYPES = {torch.float32: np.float32, torch.float64: np.float64}
_rooms: list[Any] = []
_lock = Lock()  # several ranks may be threads


def empty_like(vector: Tensor) -> Tensor:
    """Like `torch.empty_like`, for a contiguous tensor.

    Example:
        >>> empty_like(torch.zeros(3)).shape
        torch.Size([3])
    """
    if vector.nbytes < LARGE or vector.dtype not in _DTYPES or vector.device.type != "cpu":
        return torch.empty_like(vector)
    with _lock:
        return torch.from_numpy(_room(vector.shape, _DTYPES[vector.dtype]))


def copy_of(vector: Tensor) -> Tensor:
    """Like `vector.clone()`."""
    return empty_like(vector).copy_(vector)


def _room(shape: torch.Size, dtype: Any) -> Any:
    for place in range(len(_rooms)):
        room = _rooms[place]
        # Held by the list, by `room` and by the call: a tensor's storage would be one more.
        if room.shape == shape and room.dtype == dtype and sys.getrefcount(room) == 3:
            return room
    room = np.empty(shape, dtype)
    _rooms.append(room)
    del _rooms[:-_KEPT]
    return room
