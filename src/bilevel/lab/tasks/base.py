"""What a task is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from bilevel.algorithms import Algorithm
from bilevel.arguments import Checked
from bilevel.problem.problem import Problem
from bilevel.problem.structure import Variables

Measure = Callable[[Variables, Variables], dict[str, float]]


@dataclass(frozen=True)
class Instance:
    """A problem, and what to measure while it is solved.

    Args:
        problem: the two losses with their data.
        measure: x, y -> numbers by name. Losses and accuracies are those of the model y.
        measure_adapted: algorithm, k -> what takes the place of `measure` after outer step k, for
            models that adapt to new tasks by the algorithm's own inner solver.
    """

    problem: Problem
    measure: Measure
    measure_adapted: Callable[[Algorithm, int], Measure] | None = None

    def measure_after(self, algorithm: Algorithm, step: int) -> Measure:
        """What measures x and y after outer step `step` of an algorithm."""
        adapted = self.measure_adapted
        return self.measure if adapted is None else adapted(algorithm, step)


class Task(Checked, ABC):
    """A way to make a bilevel problem from a data set.

    A final subclass is a frozen dataclass: its fields are the options that an experiment's
    `problem` table may set, and it checks their values when it is made.
    """

    kind: ClassVar[str]
    has_validation: ClassVar[bool] = True  # whether validation_loss is among its measures

    @abstractmethod
    def load(self, data: str) -> Any:
        """The data set of this name, as `build` takes it."""

    @abstractmethod
    def build(self, data: Any, seed: int) -> Instance:
        """The problem on these data; `seed` decides every random choice in it."""
