"""Readings from the histories of runs: values at a time, times to a level, means and spreads."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

History = Sequence[Mapping[str, Any]]  # the lines of a run, in order
Histories = Mapping[str, Mapping[int, History]]  # by label and seed


def series(history: History, metric: str) -> tuple[list[float], list[float]]:
    """The seconds and the values of a metric; a value that was not finite is infinite."""
    seconds = [float(line["seconds"]) for line in history]
    values = [line[metric] for line in history]
    return seconds, [math.inf if value is None else float(value) for value in values]


def value_at(history: History, metric: str, time: float) -> float:
    """The last value that was measured at or before a time.

    Example:
        >>> history = [{"seconds": 0.0, "loss": 2.3}, {"seconds": 1.5, "loss": 1.0}]
        >>> value_at(history, "loss", 1.0), value_at(history, "loss", 2.0)
        (2.3, 1.0)
    """
    return values_at(history, metric, [time])[0]


def values_at(history: History, metric: str, times: Iterable[float]) -> list[float]:
    """The same at many times."""
    seconds, values = series(history, metric)
    return [values[max(bisect_right(seconds, time) - 1, 0)] for time in times]


def time_to(history: History, metric: str, level: float) -> float:
    """When a metric was first measured at or below a level; infinite if it never was.

    Example:
        >>> history = [{"seconds": 0.0, "loss": 2.3}, {"seconds": 1.5, "loss": 1.0}]
        >>> time_to(history, "loss", 1.2), time_to(history, "loss", 0.9)
        (1.5, inf)
    """
    pairs = zip(*series(history, metric), strict=True)
    return next((time for time, value in pairs if value <= level), math.inf)


def mean_over_time(history: History, metric: str, end: float, points: int = 200) -> float:
    """The average of a metric over the time from 0 to `end`, each value held until the next."""
    times = (end * (i + 0.5) / points for i in range(points))
    return statistics.fmean(values_at(history, metric, times))


@dataclass(frozen=True)
class Sample:
    """One number a seed."""

    values: tuple[float, ...]

    @staticmethod
    def of(values: Mapping[int, float]) -> Sample:
        """In the order of the seeds, so that two samples can be paired."""
        return Sample(tuple(values[seed] for seed in sorted(values)))

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def spread(self) -> float:
        """The standard deviation over seeds; 0 of one seed, infinite where a value is."""
        if not all(map(math.isfinite, self.values)):
            return math.inf
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0

    def is_below(self, other: Sample) -> int:
        """1 if clearly below seed by seed, −1 if clearly above, 0 if neither.

        Clearly: the mean of the paired differences exceeds their standard deviation. Infinite
        values (a level never reached) count as above every finite one, and as equal among
        themselves; where there are any, the seeds vote and all must agree.

        Example:
            >>> Sample((1.0, 1.1)).is_below(Sample((2.0, 2.1)))
            1
            >>> Sample((1.0, 2.0)).is_below(Sample((2.0, 1.1)))
            0
        """
        pairs = list(zip(self.values, other.values, strict=True))
        if not all(math.isfinite(value) for pair in pairs for value in pair):
            votes = {(a < b) - (a > b) for a, b in pairs}
            return votes.pop() if len(votes) == 1 else 0
        gaps = Sample(tuple(b - a for a, b in pairs))
        clear = abs(gaps.mean) > gaps.spread
        return (1 if gaps.mean > 0 else -1) if clear else 0

    def __str__(self) -> str:
        finite = [value for value in self.values if math.isfinite(value)]
        if not finite:
            return "never"
        known = Sample(tuple(finite))
        text = f"{known.mean:.4g} ± {known.spread:.2g}"
        missing = len(self.values) - len(finite)
        return f"{text} (in {missing} of {len(self.values)} seeds never)" if missing else text


def finals(histories: Histories, metric: str, end: float) -> dict[str, Sample]:
    """By label, the values at a time.

    Example:
        >>> histories = {"a": {0: [{"seconds": 0.0, "loss": 2.0}]}}
        >>> str(finals(histories, "loss", 1.0)["a"])
        '2 ± 0'
    """
    return {
        label: Sample.of({seed: value_at(h, metric, end) for seed, h in runs.items()})
        for label, runs in histories.items()
    }


def times_to_fraction(histories: Histories, metric: str, fraction: float) -> dict[str, Sample]:
    """By label, when this fraction of the possible fall was made.

    For each seed the fall is from the start to the lowest value that any algorithm reached.
    """
    seeds = next(iter(histories.values()))
    levels = {}
    for seed in seeds:
        start = max(series(runs[seed], metric)[1][0] for runs in histories.values())
        lowest = min(min(series(runs[seed], metric)[1]) for runs in histories.values())
        levels[seed] = start - fraction * (start - lowest)
    return {
        label: Sample.of({seed: time_to(h, metric, levels[seed]) for seed, h in runs.items()})
        for label, runs in histories.items()
    }
