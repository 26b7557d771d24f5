"""Checks of arguments: a wrong value is quoted, with what it should have been."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import Any

from bilevel.errors import quoted

Schedule = Callable[[int], Any]
LARGEST = 2**63 - 1


def at(value: Any, k: int) -> Any:
    """The value of a schedule at step k, or the constant itself."""
    return value(k) if callable(value) else value


def steps_at(value: Any, k: int) -> int:
    """How many inner steps outer step k has."""
    return positive_integer("inner_steps", at(value, k))


def positive_integer(name: str, value: Any) -> int:
    return _integer(name, value, least=1)


def batch_size(name: str, value: Any) -> int:
    """Any positive integer: a theorem may ask for more rows than there can be, a run tells."""
    if isinstance(value, int) and not isinstance(value, bool) and value > LARGEST:
        return value
    return positive_integer(name, value)


def natural(name: str, value: Any) -> int:
    return _integer(name, value, least=0)


def valid_seed(name: str, value: Any) -> int:
    """What random generators take; step numbers are added to it."""
    return natural(name, value)


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


def share(name: str, value: Any) -> float:
    """A positive number of at most 1."""
    if positive(name, value) > 1:
        raise ValueError(f"{name} must be at most 1, got {quoted(value)}")
    return float(value)


def optional(check: Callable[[str, Any], object], name: str, value: Any) -> None:
    """`value` must be None or pass this check."""
    if value is not None:
        check(name, value)


def instance(name: str, value: Any, kind: Any, example: str) -> None:
    """`value` must be an object of this kind, and not its class or its name."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be an object such as {example}, got {quoted(value)}")


def _integer(name: str, value: Any, least: int) -> int:
    if type(value) is int and least <= value <= LARGEST:  # most are, and methods ask often
        return value
    # NumPy's integers are integers too.
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {quoted(value)}")
    if int(value) > LARGEST:  # torch and Python's own loops take no more
        raise ValueError(f"{name} must be below 2**63, got {quoted(value)}")
    return int(value)


def _is_number(value: Any) -> bool:
    if type(value) is float:
        return math.isfinite(value)
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    # An integer that torch cannot take would be an error far from here.
    return math.isfinite(value) and (float(value) < LARGEST or not isinstance(value, int))
