"""From numbers in a file to numbers in a tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bilevel.errors import UserError


def tensor_dtype(what: str, stored: Any, wanted: torch.dtype | None) -> torch.dtype:
    """The dtype for tensors with the values of `what`: the wanted one, or else its own.

    Raises:
        UserError: torch has no such dtype, or fractions would be lost.
    """
    try:
        own = torch.from_numpy(np.empty(0, np.dtype(stored).newbyteorder("="))).dtype
    except TypeError as error:
        raise UserError(f"{what} holds {stored}: give plain numbers") from error
    if wanted is not None and not torch.can_cast(own, wanted):
        raise UserError(f"{what} holds {own}, which cannot be made {wanted} without loss")
    return wanted or own


def as_native(raw: NDArray[Any], dtype: torch.dtype) -> Tensor:
    """A tensor of this dtype, also from values in the other byte order."""
    return torch.from_numpy(raw.astype(raw.dtype.newbyteorder("="), copy=False)).to(dtype)


def all_finite(values: Tensor) -> bool:
    """Whether no value is NaN or infinite.

    A sum is several times faster than checking each value, and takes no memory. It is finite only
    if all values are; otherwise it may have overflowed, and each value is checked.
    """
    if not values.is_floating_point() or bool(torch.isfinite(values.sum())):
        return True
    return bool(torch.isfinite(values).all())
