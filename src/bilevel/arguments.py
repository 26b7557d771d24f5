"""Checks of arguments: a wrong value is quoted, with what it should have been."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import Any

from bilevel.errors import quoted

Schedule = Callable[[int], Any]
LARGEST_SEED = 2**63 - 1


def at(value: Any, k: int) -> Any:
    """The value of a schedule at step k, or the constant itself."""
    return value(k) if callable(value) else value


def positive_integer(name: str, value: Any) -> int:
    return _integer(name, value, least=1)


def natural(name: str, value: Any) -> int:
    return _integer(name, value, least=0)


def valid_seed(name: str, value: Any) -> int:
    """What random generators take; step numbers are added to it."""
    if natural(name, value) > LARGEST_SEED:
        raise ValueError(f"{name} must be below 2**63, got {quoted(value)}")
    return int(value)


def positive(name: str, value: Any) -> float:
    if not _is_number(value) or not value > 0:
        raise ValueError(f"{name} must be a positive number, got {quoted(value)}")
    return float(value)


def non_negative(name: str, value: Any) -> float:
    if not _is_number(value) or not value >= 0:
        raise ValueError(f"{name} must be a number of at least 0, got {quoted(value)}")
    return float(value)


def fraction(name: str, value: Any) -> float:
    """A number from 0 up to, but not including, 1."""
    if not _is_number(value) or not 0 <= value < 1:
        raise ValueError(f"{name} must be a number from 0 to below 1, got {quoted(value)}")
    return float(value)


def instance(name: str, value: Any, kind: type[Any], example: str) -> None:
    """`value` must be an object of this kind, and not its class or its name."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be an object such as {example}, got {quoted(value)}")


def _integer(name: str, value: Any, least: int) -> int:
    if type(value) is int and value >= least:  # most are, and algorithms ask at each step
        return value
    # NumPy's integers are integers too.
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {quoted(value)}")
    return int(value)


def _is_number(value: Any) -> bool:
    if type(value) is float:
        return math.isfinite(value)
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return real and math.isfinite(value)
