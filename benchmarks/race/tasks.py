"""The case of the few-shot contests, for `benchmarks/few_shot.py` to make anew in every process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from race.case import Array


@dataclass(frozen=True)
class TasksCase:
    """ANIL's derivative on tasks of 5-way 5-shot with 5 query images a class.

    Args:
        size: height and width of an image.
        steps: D, of the head.
        tasks: how many.
        truth: what must come out, in float64; None until it is known.
        rows: none: an answer is one outer step.
    """

    size: int
    steps: int
    tasks: int
    truth: Array | None = None
    rows: tuple[()] = ()

    def with_truth(self, truth: Array) -> TasksCase:
        return replace(self, truth=truth)


def tasks(size: int, steps: int) -> Callable[[bool], TasksCase]:
    return lambda quick: TasksCase(size, steps, tasks=2 if quick else 32)
