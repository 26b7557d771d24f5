"""Kernels that numba compiles: an extra, `pip install bilevel[fast]`.

Everything works without them. Only `available` may be asked where numba is not installed.
"""

from __future__ import annotations

import functools
import importlib.util


@functools.cache  # a look takes as long as a sum over 100,000 numbers
def available() -> bool:
    """Whether numba is installed."""
    return importlib.util.find_spec("numba") is not None
