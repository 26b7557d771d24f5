"""What a contest is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from race.case import AnyCase, Array


class Kind(Enum):
    OURS = "ours"
    PEER = "peer"  # a library, or plain torch or JAX
    FLOOR = "floor"  # no answer, not ranked


@dataclass(frozen=True)
class Contestant:
    """`make` is "module:function", imported in a process of its own."""

    name: str
    make: str
    kind: Kind = Kind.PEER


@dataclass(frozen=True)
class Contest:
    """The same problem for all.

    Args:
        name, title: R1, and what it is.
        case: makes the problem; the argument is true for a quick one.
        truth: the answer in float64.
        threshold: the relative error beyond which a contestant is disqualified.
        target: how the issue puts it: ratio to `rival`.
        rival: part of a contestant's name; the fastest of those that match is compared with.
        most_repeats: for contests that take minutes.
    """

    name: str
    title: str
    case: Callable[[bool], AnyCase]
    truth: Callable[[Any], Array]
    threshold: float
    contestants: tuple[Contestant, ...]
    target: float
    rival: str = ""
    most_repeats: int = 100
