"""How the contestants of R7 find the loosest setting that gives 1 %, before they are timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from race.case import Array, Case, InaccurateError, relative_error

Run = Callable[[], Array]
_PATIENCE = 180.0  # seconds on the ladder after which no further rung is tried


@dataclass(frozen=True)
class Warm:
    """A run that has been made already: it needs no other to warm up."""

    run: Run

    def __call__(self) -> Array:
        return self.run()


def first_accurate(case: Case, rungs: Iterable[tuple[str, Run]]) -> Warm:
    """The first of these runs that is within 1 % of the truth; they are tried in turn."""
    assert case.truth is not None
    begun, best = time.perf_counter(), ""
    for name, run in rungs:
        error = relative_error(run(), case.truth)
        if error <= 0.01:
            return Warm(run)
        seconds = time.perf_counter() - begun
        best = f"not within 1 % after {seconds:.0f} s: {error:.1%} off with {name}"
        if seconds > _PATIENCE:
            break
    raise InaccurateError(best)
