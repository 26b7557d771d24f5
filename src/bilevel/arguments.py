"""Checks of arguments: a wrong value is quoted, with what it should have been."""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from bilevel.errors import quoted

Schedule = Callable[[int], Any]
Check = Callable[[str, Any], object]
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


def optional(check: Check, name: str, value: Any) -> None:
    """`value` must be None or pass this check."""
    if value is not None:
        check(name, value)


def instance(name: str, value: Any, kind: Any, example: str) -> None:
    """`value` must be an object of this kind, and not its class or its name."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be an object such as {example}, got {quoted(value)}")


def flag(name: str, value: Any) -> None:
    instance(name, value, bool, "True or False")


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
    try:
        size = float(value)
    except OverflowError:  # of an integer or a fraction
        return False
    # An integer that torch cannot take would be an error far from here.
    return math.isfinite(size) and (size < LARGEST or not isinstance(value, int))


# What the fields of a `Checked` dataclass may hold; alone, or with others: `Positive | None`.
Count = Annotated[int, positive_integer]
Natural = Annotated[int, natural]
BatchSize = Annotated[int, batch_size]
Seed = Annotated[int, valid_seed]
Positive = Annotated[float, positive]
NonNegative = Annotated[float, non_negative]
Fraction = Annotated[float, fraction]
Share = Annotated[float, share]
Flag = Annotated[bool, flag]


class Checked:
    """A dataclass whose fields are checked when it is made, as their annotations say.

    Of a schedule, the first value is checked. A class that says what it is `such_as` allows only
    its own objects.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Steps(Checked):
        ...     count: Count
        ...     lr: Positive | Schedule | None = None
        >>> Steps(3, lr=lambda k: -1.0)
        Traceback (most recent call last):
        ...
        ValueError: lr must be a positive number, got -1.0
    """

    def __post_init__(self) -> None:
        kind: Any = type(self)
        for name, check in _checks(kind):
            check(name, getattr(self, name))


@cache  # methods make their parts anew in each step
def _checks(kind: Any) -> list[tuple[str, Check]]:
    hints: dict[str, Any] = {}
    for owner in reversed(kind.__mro__):
        # A class of the user's may name what it imports for type checkers alone.
        with suppress(*() if owner.__module__.startswith("bilevel.") else (Exception,)):
            hints |= inspect.get_annotations(owner, eval_str=True)
    found = ((field.name, _check_of(hints.get(field.name))) for field in fields(kind))
    return [(name, check) for name, check in found if check is not None]


def _check_of(hint: Any) -> Check | None:
    """The check of what an annotation allows; None if that is anything."""
    if get_origin(hint) is Annotated:
        given: Check = hint.__metadata__[0]
        return given
    if isinstance(hint, type) and "such_as" in vars(hint):
        return lambda name, value: instance(name, value, hint, vars(hint)["such_as"])
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else ()
    check = next(filter(None, map(_check_of, options)), None)
    if check is None:
        return None
    others = tuple(o for o in options if isinstance(o, type) and _check_of(o) is None)
    scheduled = any(get_origin(option) is Callable for option in options)

    def of_others(name: str, value: Any) -> None:
        if not isinstance(value, others):
            check(name, at(value, 0) if scheduled else value)

    return of_others
