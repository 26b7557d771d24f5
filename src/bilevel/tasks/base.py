"""What a task is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from bilevel.datasets import Dataset
from bilevel.problem import Problem
from bilevel.structure import Variables

Measure = Callable[[Variables, Variables], dict[str, float]]


@dataclass(frozen=True)
class Instance:
    """A problem, and what to measure while it is solved.

    Args:
        problem: the two losses with their data.
        measure: x, y -> numbers by name. Losses and accuracies are those of the model y.
    """

    problem: Problem
    measure: Measure


class Task(ABC):
    """A way to make a bilevel problem from a data set.

    A final subclass is a frozen dataclass: its fields are the options that an experiment's
    `problem` table may set, and it checks their values when it is made.
    """

    kind: ClassVar[str]

    @abstractmethod
    def build(self, data: Dataset, seed: int) -> Instance:
        """The problem on these data; `seed` decides every random choice in it."""
