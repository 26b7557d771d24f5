"""Kernels that numba compiles: an extra, `pip install bilevel[fast]`.

Everything works without them. Only `bilevel.oracles` knows them, and only `available` may be
asked where numba is not installed.
"""

from __future__ import annotations

import importlib.util


def available() -> bool:
    """Whether numba is installed."""
    return importlib.util.find_spec("numba") is not None
