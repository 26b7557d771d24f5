"""When f is evaluated on all rows: a look at the run, which must not take longer than the run."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bilevel.oracles.points import Oracle
from bilevel.runs.history import HistoryRecord

_MANY = 1000  # rows from which an evaluation may be dear
_SHARE = 0.1  # of the work of the steps
_VALUE = 1 / 3  # a value costs about a third of a gradient
_PRODUCT = 2  # and a product with second derivatives about two


class Evaluations:
    """Which steps f, and the metrics, are evaluated after.

    By default after each, but for losses by automatic differentiation with many outer rows only
    so often that it takes about a tenth of the work of the steps. By rows and not by the clock:
    a resumed run evaluates where the unbroken one does.

    Args:
        every: n for each n-th step; None for the default.
        oracle: of the run.
    """

    def __init__(self, every: int | None, oracle: Oracle) -> None:
        self._every = every
        rows = oracle.outer_rows or 0
        self._rows = rows if rows >= _MANY and oracle.linear_bytes is not None else None

    def is_due(self, step: int, history: Sequence[HistoryRecord]) -> bool:
        """After this step, given those before."""
        if self._every is not None:
            return step % self._every == 0
        if self._rows is None or not history:
            return True
        counts = history[0].counts
        gradients = counts.gc_f_samples / 2 + counts.gc_g_samples  # ∇x f and ∇y f are one pass
        work = gradients + _PRODUCT * (counts.jv_samples + counts.hv_samples)
        return step % math.ceil(self._rows * _VALUE / (_SHARE * max(1, work))) == 0
