"""Long vectors in one pass, by torch's threads."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from torch import Tensor

from bilevel.kernels import threads
from bilevel.kernels.kernel import kernel
from bilevel.kernels.team import parallel, share

_APART = 8  # numbers between the sums of two threads, which then have cache lines of their own


def dot(a: Tensor, b: Tensor) -> float:
    """⟨a, b⟩, summed in double precision."""
    return float(_dot(a.numpy(), b.numpy(), threads.of_kernel()))


@kernel
def _dot(a: Any, b: Any, count: int) -> Any:
    sums = np.zeros(count * _APART)
    parallel(_dots, (a, b, sums), count)
    return sums.sum()


@njit(nogil=True)
def _dots(given: Any, me: int, size: int) -> None:
    a, b, sums = given
    first, last = share(len(a), me, size)
    sums[me * _APART] = _of_part(a[first:last], b[first:last])


@njit(nogil=True, fastmath={"reassoc", "contract"})
def _of_part(a: Any, b: Any) -> Any:
    found = 0.0
    for i in range(len(a)):
        found += np.float64(a[i]) * np.float64(b[i])
    return found
