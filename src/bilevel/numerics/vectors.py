"""Sums over long vectors that lose no digits.

In single precision, torch's sum of millions of products is off by 1e-5; conjugate gradients
amplify that a hundredfold.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bilevel import kernels as compiled

_LONG = 2**16
_DTYPES = (torch.float32, torch.float64)


def dot(a: Tensor, b: Tensor) -> float:
    """⟨a, b⟩.

    Example:
        >>> dot(torch.ones(3), torch.ones(3))
        3.0
    """
    if a.numel() <= _LONG:
        return float(a @ b)
    if a.device.type == "cpu" and a.dtype == b.dtype in _DTYPES and compiled.usable():
        from bilevel.kernels.vectors import dot as compiled_dot

        return compiled_dot(a, b)
    return _dot_by_blocks(a, b)


def norm(vector: Tensor) -> float:
    """‖vector‖."""
    if vector.numel() <= _LONG:
        return float(torch.linalg.vector_norm(vector))
    return math.sqrt(dot(vector, vector))


def _dot_by_blocks(a: Tensor, b: Tensor) -> float:
    """Products in the vectors' own precision, and the sum of the blocks in double precision."""
    whole = a.numel() // _LONG * _LONG
    blocks = (vector[:whole].reshape(-1, _LONG) for vector in (a, b))
    return float(torch.linalg.vecdot(*blocks).double().sum() + a[whole:] @ b[whole:])
