"""When f is evaluated on all rows, and how many steps are taken at once in between."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from bilevel.errors import quoted
from bilevel.oracles.points import Oracle
from bilevel.runs.history import HistoryRecord
from bilevel.runs.stopwatch import Stopwatch

Taken = TypeVar("Taken")

_MANY = 1000  # rows from which on an evaluation may be expensive
_SHARE = 0.1  # of the work of the steps
_VALUE = 1 / 3  # a value costs about a third of a gradient
_PRODUCT = 2  # and a product with second derivatives about two
_FAR = 20  # steps between two evaluations from which on they are taken in stretches
_PIECE = 0.2  # seconds per stretch: Ctrl-C and checkpoints wait for its end


class Evaluations:
    """After which steps f and the metrics are evaluated.

    By default after each step; with automatic differentiation and many outer rows, only so often
    that evaluation takes about a tenth of the work of the steps. The number of rows decides, not
    the clock: a resumed run evaluates after the same steps as an uninterrupted one.

    Args:
        every: n for every n-th step; None for the default.
        oracle: of the run.
    """

    def __init__(self, every: int | None, oracle: Oracle) -> None:
        self._every = every
        rows = oracle.outer_rows or 0
        self._rows = rows if rows >= _MANY and oracle.linear_bytes is not None else None

    def is_due(self, step: int, history: Sequence[HistoryRecord]) -> bool:
        """Whether to evaluate after this step, given the history."""
        if self._every is not None:
            return step % self._every == 0
        if self._rows is None or not history:
            return True
        counts = history[0].counts
        gradients = counts.gc_f_samples / 2 + counts.gc_g_samples  # ∇x f and ∇y f are one pass
        work = gradients + _PRODUCT * (counts.jv_samples + counts.hv_samples)
        return step % math.ceil(self._rows * _VALUE / (_SHARE * max(1, work))) == 0


class Pace:
    """How many steps to take at once: about a fifth of a second's, and none past an evaluation.

    The result does not depend on it: a stretch gives the same bits however it is cut.
    """

    def __init__(self, evaluate_every: int, watch: Stopwatch) -> None:
        self._every, self._watch, self._steps = evaluate_every, watch, _FAR

    @staticmethod
    def between(evaluate_every: int | None, watch: Stopwatch) -> Pace | None:
        """None if there is no room for stretches between two evaluations."""
        far = evaluate_every is not None and evaluate_every >= _FAR
        return Pace(evaluate_every, watch) if far and evaluate_every is not None else None

    def take(self, take: Callable[[int], Taken | None], step: int, last: int) -> Taken | None:
        """The next steps from `step` on; None if the very next one fails."""
        while True:
            count = max(1, min(self._steps, self._every - step % self._every, last - step))
            before = self._watch.spent
            taken = take(count)
            if taken is None and count > 1:
                # One of these steps is not finite: find it by itself.
                self._steps = count // 2
                continue
            often = int(count * _PIECE / max(self._watch.spent - before, 1e-9))
            # At most twice as many as before: the first steps of a stretch may be the cheap ones.
            self._steps = max(1, min(2 * max(count, self._steps), often))
            return taken


def number(name: str, value: Any) -> float:
    """What a metric gave, as a number."""
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        what = f"metric {quoted(name)} must return one number, got {quoted(value)}"
        raise TypeError(what) from None
