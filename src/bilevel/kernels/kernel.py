"""How kernels are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def kernel(function: Callable[..., Any], **options: Any) -> Any:
    """Compiled at first use without Python's lock, and kept on disk for the next process.

    Where no folder can be written to, numba refuses to keep it: then it is compiled each time.
    """
    try:
        return njit(nogil=True, cache=True, **options)(function)
    except RuntimeError:
        return njit(nogil=True, **options)(function)
