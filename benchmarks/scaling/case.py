"""What is measured: a run at each of several sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from bilevel.algorithms import Algorithm
from bilevel.problem.problem import Problem


@dataclass(frozen=True)
class Case:
    """A run of which the steps between the first and the last are timed.

    Args:
        steps: how many are timed.
        per: what their seconds are divided by: `steps`, or 1 for the whole run.
    """

    problem: Problem
    algorithm: Algorithm
    steps: int
    per: int


@dataclass(frozen=True)
class Study:
    """One algorithm on one kind of data, against one size.

    Args:
        axis: what grows.
        data: "dense" or "sparse".
        method: the algorithm, as in the table.
        sizes: from the least to the largest, each the same factor above the one before.
        case: the run at a size.
        time_bound: the exponent that the mathematics needs at most.
        memory_bound: the same of the bytes at the peak, beyond the data.
    """

    axis: str
    data: str
    method: str
    sizes: tuple[int, ...]
    case: Callable[[int], Case]
    time_bound: float = 1.0
    memory_bound: float = 1.0

    def shorter(self, count: int) -> Study:
        """The same with the `count` least sizes only."""
        return replace(self, sizes=self.sizes[:count])

    def __str__(self) -> str:
        return f"{self.axis}, {self.data}, {self.method}"
