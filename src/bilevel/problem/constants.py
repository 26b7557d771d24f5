"""A constant of the assumptions, with what it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from bilevel.arguments import non_negative
from bilevel.record import Record


class Kind(StrEnum):
    """How far a constant can be trusted."""

    EXACT = "exact"
    BOUND = "bound"  # valid wherever the text says, but not the best possible
    ESTIMATE = "estimate"  # from samples around a point: the truth may be worse


@dataclass(frozen=True)
class Constant(Record):
    """A number, and what it rests on.

    Example:
        >>> from bilevel.theory import Constant, Kind
        >>> mu = Constant(0.1, Kind.BOUND, "the ridge")
        >>> mu.value, str(mu.kind)
        (0.1, 'bound')
    """

    value: float
    kind: Kind
    how: str

    def __post_init__(self) -> None:
        non_negative(f"a constant ({self.how})", self.value)


Known = Mapping[str, Constant]
