"""How many outer steps a run takes at once, where its method can take many."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from bilevel.runs.stopwatch import Stopwatch

Taken = TypeVar("Taken")

_FAR = 20  # steps between two evaluations from which on they are taken in stretches
_PIECE = 0.2  # seconds that a part of a stretch takes: Ctrl-C and checkpoints wait for its end


class Pace:
    """As many steps as take a fifth of a second, and never past an evaluation.

    The answer does not depend on it: a stretch has the same bits however it is cut.
    """

    def __init__(self, evaluate_every: int, watch: Stopwatch) -> None:
        self._every, self._watch, self._steps = evaluate_every, watch, _FAR

    @staticmethod
    def between(evaluate_every: int | None, watch: Stopwatch) -> Pace | None:
        """None where there is no room for stretches between two evaluations."""
        far = evaluate_every is not None and evaluate_every >= _FAR
        return Pace(evaluate_every, watch) if far and evaluate_every is not None else None

    def take(self, take: Callable[[int], Taken | None], step: int, last: int) -> Taken | None:
        """The next steps from `step` on; None if the very next one fails."""
        while True:
            count = max(1, min(self._steps, self._every - step % self._every, last - step))
            before = self._watch.spent
            taken = take(count)
            if taken is None and count > 1:
                # Somewhere in these steps is one that is not finite: it is to be found alone.
                self._steps = count // 2
                continue
            often = int(count * _PIECE / max(self._watch.spent - before, 1e-9))
            # At most twice as many as before: the first steps of a stretch may be the cheap ones.
            self._steps = max(1, min(2 * max(count, self._steps), often))
            return taken
