"""The time that a run takes, with a limit that also holds within a step."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bilevel.errors import quoted
from bilevel.problem.peers import Peers

_ASIDE = 0.1  # of the limit: what a look may take even when the time is up


class OutOfTimeError(BaseException):
    """The time is up: the current computation is abandoned.

    Not an Exception: a solver or a user's method that catches those must not continue.
    """


class Stopwatch:
    """Measures steps, and interrupts them when the time is up.

    Args:
        clock: gives the time in seconds.
        limit: how many there are; None is no limit.
        peers: the slowest counts for all, and all are interrupted at the same call.
    """

    def __init__(self, clock: Callable[[], float], limit: float | None, peers: Peers) -> None:
        _check(clock)
        self.spent = 0.0
        self._clock, self._limit, self._peers = clock, limit, peers
        self._end: float | None = None

    @property
    def watcher(self) -> Callable[[], None] | None:
        """`look`, if there is a time limit; else None."""
        return None if self._limit is None else self.look

    @contextmanager
    def step(self) -> Iterator[None]:
        """Inside the block, time is spent, even if the step is interrupted.

        Raises:
            OutOfTimeError: by `look`, once the limit is passed.
        """
        start = self._clock()
        try:
            with self._until(start, 0.0 if self._limit is None else self._limit - self.spent):
                yield
        except OutOfTimeError:
            self._spend(start)
            raise
        self._spend(start)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Inside the block, no time is spent; but it may take only what is left, or a tenth of all.

        Raises:
            OutOfTimeError: by `look`; then all time counts as spent.
        """
        limit = self._limit or 0.0
        try:
            with self._until(self._clock(), max(limit - self.spent, _ASIDE * limit)):
                yield
        except OutOfTimeError:
            self.spent = max(self.spent, limit)
            raise

    def look(self) -> None:
        """Raise OutOfTimeError if the time is up; called between oracle calls."""
        if self._end is not None and self._peers.any(self._clock() >= self._end):
            raise OutOfTimeError

    @contextmanager
    def _until(self, start: float, seconds: float) -> Iterator[None]:
        self._end = None if self._limit is None else start + seconds
        try:
            yield
        finally:
            self._end = None

    def _spend(self, start: float) -> None:
        # The slowest process counts for all: a time limit must end them at the same step.
        # A clock that was set back in between (time.time) takes none of it away.
        self.spent += self._peers.largest(max(0.0, self._clock() - start))


def _check(clock: Callable[[], float]) -> None:
    """Before any work: a clock that needs an argument would fail inside the first step."""
    try:
        now: object = clock()
    except Exception as error:
        raise TypeError(f"clock() failed: {error}; give a function without arguments") from error
    if isinstance(now, bool) or not isinstance(now, numbers.Real) or not math.isfinite(now):
        raise TypeError(f"clock() must give seconds as a number, got {quoted(now)}")
