"""Step sizes and loop counts that change with the step."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bilevel.arguments import Checked, NonNegative, Positive

Values = np.ndarray[Any, Any]


@dataclass(frozen=True)
class increasing(Checked):  # noqa: N801 - used like a function, and readable when printed
    """⌈c (k+1)^power⌉: inner steps that grow with the outer step k.

    The power 1/4 is the schedule of Ghadimi & Wang (2018) for AID, which the paper calls
    AID-BiO-increasing; the power 1/2 is theirs for BSA.

    Example:
        >>> [increasing(2)(k) for k in (0, 1, 15, 80)]
        [2, 3, 4, 6]
    """

    c: Positive
    power: NonNegative = 0.25

    def __call__(self, k: int) -> int:
        exact: float = self.c * (k + 1) ** self.power
        return math.ceil(exact - 1e-9)  # so that 16 ** 0.25 gives 2, however it is rounded


@dataclass(frozen=True)
class decaying(Checked):  # noqa: N801
    """c (k + 1)^(-power): step sizes that shrink with the step k.

    Example:
        >>> [round(decaying(1.0, 0.5)(k), 3) for k in (0, 3, 99)]
        [1.0, 0.5, 0.1]
    """

    c: Positive
    power: NonNegative

    def __call__(self, k: int) -> float:
        return float(self.c * (k + 1) ** -self.power)

    def over(self, steps: range) -> Values:
        """Of all these steps at once."""
        found: Values = self.c * np.arange(steps.start + 1.0, steps.stop + 1.0) ** -self.power
        return found


def values(value: float | Callable[[int], float], steps: range) -> Values:
    """A constant or a schedule at each of these steps.

    Example:
        >>> values(decaying(1.0, 1.0), range(1, 4)).round(3).tolist()
        [0.5, 0.333, 0.25]
    """
    if isinstance(value, decaying):
        return value.over(steps)
    given = [value(k) for k in steps] if callable(value) else [value] * len(steps)
    return np.array(given, float)
