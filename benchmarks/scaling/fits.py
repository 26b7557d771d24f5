"""Exponents: slopes of log seconds, or log bytes, against log size."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

TOLERANCE = 0.1  # what noise and the steps of the caches may add to an exponent


@dataclass(frozen=True)
class Exponent:
    """The median over rounds, with the least and the most."""

    median: float
    least: float
    most: float

    @staticmethod
    def of(sizes: Sequence[float], rounds: Sequence[Sequence[float]]) -> Exponent:
        """One slope a round.

        Example:
            >>> Exponent.of([1, 2, 4], [[3.0, 6.0, 12.0], [1.0, 4.0, 16.0], [5.0, 5.0, 5.0]])
            Exponent(median=1.0, least=0.0, most=2.0)
        """
        slopes = [slope(sizes, values) for values in rounds]
        return Exponent(statistics.median(slopes), min(slopes), max(slopes))

    def within(self, bound: float) -> bool:
        return self.median <= bound + TOLERANCE

    def __str__(self) -> str:
        if self.least == self.most:
            return f"{self.median:.2f}"
        return f"{self.median:.2f} ({self.least:.2f} to {self.most:.2f})"


def slope(sizes: Sequence[float], values: Sequence[float]) -> float:
    """p of values = C sizes^p, by least squares in logarithms.

    Example:
        >>> slope([10, 20, 40], [7 * n**1.5 for n in (10, 20, 40)])
        1.5
    """
    fitted = np.polyfit(np.log2(sizes), np.log2(values), 1)
    return round(float(fitted[0]), 9)


def upper_half(values: Sequence[float]) -> Sequence[float]:
    """The larger sizes, where fixed costs hide least: three at least.

    Example:
        >>> upper_half([1, 2, 3, 4, 5, 6])
        [4, 5, 6]
    """
    return values[min(len(values) // 2, max(0, len(values) - 3)) :]
