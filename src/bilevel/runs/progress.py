"""What a callback is, and what it sees."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

from bilevel.algorithms.contract import State
from bilevel.errors import quoted
from bilevel.problem.structure import Variables
from bilevel.runs.history import HistoryRecord


@dataclass(frozen=True)
class Progress:
    """What a callback sees after an outer step.

    Args:
        record: a copy of the step's record.
        steps: the largest number of steps that the run will take.
        x, y: copies of the variables, in the user's structures.
        state: a copy of the whole state: changing it has no effect on the run.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> def close_enough(progress):
        ...     return progress.record.hypergradient_norm < 1e-3  # True ends the run
        >>> str(bilevel.minimize(halves(), callbacks=[close_enough]).status)
        'stopped'
    """

    record: HistoryRecord
    steps: int
    x: Variables
    y: Variables
    state: State


Callback = Callable[[Progress], bool | None]


class StatefulCallback(ABC):
    """A callback with a memory, which checkpoints keep and a resumed run restores.

    Example:
        >>> class Lowest(StatefulCallback):
        ...     def __init__(self):
        ...         self.lowest = float("inf")
        ...     def __call__(self, progress):
        ...         self.lowest = min(self.lowest, progress.record.hypergradient_norm)
        ...     def memory(self):
        ...         return {"lowest": self.lowest}
        ...     def remember(self, memory):
        ...         self.lowest = memory["lowest"]
    """

    @abstractmethod
    def __call__(self, progress: Progress) -> bool | None:
        """See an outer step; True stops the run."""

    @abstractmethod
    def memory(self) -> dict[str, Any]:
        """What was learned from the steps: numbers, text, tensors, and lists and dicts of them."""

    @abstractmethod
    def remember(self, memory: dict[str, Any]) -> None:
        """Restore what `memory` returned."""


def says_stop(answer: Any) -> bool:
    """Whether a callback's answer is true in any form: numpy's, a tensor, 1."""
    try:
        if not isinstance(answer, Awaitable | Iterator):  # of an async function: true, but unknown
            return answer is not None and bool(answer)
    except (TypeError, ValueError, RuntimeError):  # several values, or none that can be known
        pass
    raise TypeError(f"a callback must return True, False or None, got {quoted(answer)}")
