"""Curves of runs: what was measured, readings from it, and the mean and range over seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

Vector = NDArray[np.float64]
_POINTS = 200


@dataclass(frozen=True)
class Curve:
    """What one algorithm measured with one seed.

    Args:
        label: of the algorithm.
        seed: its number.
        columns: those of metrics.jsonl, one value for each line; NaN where none was measured
            (null), and infinity where what was measured is not finite.
        status: how the run ended; None while it is going on or after a crash.
        message: what the end means.
    """

    label: str
    seed: int
    columns: dict[str, Vector]
    status: str | None = None
    message: str = ""

    def column(self, name: str) -> Vector:
        """Its values; NaN where there are none."""
        missing = np.full(len(next(iter(self.columns.values()), ())), np.nan)
        return self.columns.get(name, missing)

    def last(self, name: str) -> float:
        """The last value that was measured; NaN if there is none."""
        values = self.column(name)
        measured = values[~np.isnan(values)]
        return float(measured[-1]) if len(measured) else math.nan

    def series(self, metric: str) -> tuple[Vector, Vector]:
        """The seconds and the values of a metric; a value that was lost (NaN) is infinite."""
        values = self.column(metric)
        return self.column("seconds"), np.where(np.isnan(values), math.inf, values)

    def against(self, prices: Sequence[str], name: str) -> tuple[Vector, Vector]:
        """A column against the sum of others, up to the first value that is not finite.

        Lines where it was not measured are skipped.
        """
        x: Vector = np.sum([self.column(price) for price in prices], axis=0)
        values = self.column(name)
        measured = ~np.isnan(x) & ~np.isnan(values)
        x, values = x[measured], values[measured]
        end = int(np.isfinite(values).cumprod().sum())
        return x[:end], values[:end]

    def within(self, seconds: float) -> Curve:
        """Only what was measured in time."""
        kept = self.column("seconds") <= seconds
        return replace(self, columns={name: c[kept] for name, c in self.columns.items()})


Curves = Mapping[str, Sequence[Curve]]  # by label, in the order of the seeds


def held(x: Vector, values: Vector, places: ArrayLike) -> Vector:
    """At each place, the last value that was measured at or before it.

    >>> held(np.array([0.0, 2.0, 5.0]), np.array([9.0, 4.0, 1.0]), [0.0, 1.9, 2.0, 5.0])
    array([9., 9., 4., 1.])
    """
    found: Vector = values[np.maximum(np.searchsorted(x, places, side="right") - 1, 0)]
    return found


def value_at(curve: Curve, metric: str, time: float) -> float:
    """The last value that was measured at or before a time.

    >>> curve = Curve("a", 0, {"seconds": np.array([0.0, 1.5]), "loss": np.array([2.3, 1.0])})
    >>> value_at(curve, "loss", 1.0), value_at(curve, "loss", 2.0)
    (2.3, 1.0)
    """
    return float(held(*curve.series(metric), [time])[0])


def time_to(curve: Curve, metric: str, level: float) -> float:
    """When a metric was first measured at or below a level; infinite if it never was.

    >>> curve = Curve("a", 0, {"seconds": np.array([0.0, 1.5]), "loss": np.array([2.3, 1.0])})
    >>> time_to(curve, "loss", 1.2), time_to(curve, "loss", 0.9)
    (1.5, inf)
    """
    seconds, values = curve.series(metric)
    return float(next(iter(seconds[values <= level]), math.inf))


def mean_over_time(curve: Curve, metric: str, end: float, points: int = _POINTS) -> float:
    """The average of a metric over the time from 0 to `end`, each value held until the next."""
    return float(held(*curve.series(metric), end * (np.arange(points) + 0.5) / points).mean())


@dataclass(frozen=True)
class Sample:
    """One number for each seed."""

    values: tuple[float, ...]

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
        finite = tuple(value for value in self.values if math.isfinite(value))
        if not finite:
            return "never"
        text = f"{Sample(finite).mean:.4g} ± {Sample(finite).spread:.2g}"
        missing = len(self.values) - len(finite)
        return f"{text} (in {missing} of {len(self.values)} seeds never)" if missing else text


def samples(curves: Curves, reading: Callable[[Curve], float]) -> dict[str, Sample]:
    """By label, what is read from the curve of each seed."""
    return {label: Sample(tuple(map(reading, seeds))) for label, seeds in curves.items()}


def finals(curves: Curves, metric: str, end: float = math.inf) -> dict[str, Sample]:
    """By label, the values at a time."""
    return samples(curves, lambda curve: value_at(curve, metric, end))


def averages(curves: Curves, metric: str, end: float) -> dict[str, Sample]:
    """By label, the averages over the time from 0 to `end`."""
    return samples(curves, lambda curve: mean_over_time(curve, metric, end))


def extents(curves: Curves, metric: str) -> list[tuple[float, float]]:
    """For each seed, where the highest run starts, and the lowest value that any run reached."""
    runs = zip(*([c.series(metric)[1] for c in seeds] for seeds in curves.values()), strict=True)
    return [(float(max(v[0] for v in run)), float(min(v.min() for v in run))) for run in runs]


def times_to_fraction(curves: Curves, metric: str, fraction: float) -> dict[str, Sample]:
    """By label, when this fraction of the possible fall was made.

    For each seed the fall is from the start to the lowest value that any algorithm reached.
    """
    levels = [start - fraction * (start - low) for start, low in extents(curves, metric)]
    return {
        label: Sample(tuple(time_to(c, metric, at) for c, at in zip(seeds, levels, strict=True)))
        for label, seeds in curves.items()
    }


@dataclass(frozen=True)
class Band:
    """The mean over seeds and the lowest and highest seed, on one grid."""

    grid: Vector
    mean: Vector
    low: Vector
    high: Vector
    seeds: int


def band(curves: Sequence[tuple[Vector, Vector]], points: int = _POINTS) -> Band | None:
    """The mean of step-wise curves and their range, without inventing values.

    The grid consists of the places where some curve was measured, from the last start to the
    first end: no curve is prolonged. It is thinned evenly to `points`.

    Args:
        curves: pairs of places, not falling, and values.
        points: the most that the grid may have.

    Returns:
        None where the curves have no place in common.

    >>> one = (np.array([0.0, 1.0, 2.0]), np.array([4.0, 2.0, 0.0]))
    >>> two = (np.array([0.0, 1.5, 3.0]), np.array([8.0, 4.0, 0.0]))
    >>> both = band([one, two])
    >>> both.grid, both.mean
    (array([0. , 1. , 1.5, 2. ]), array([6., 5., 3., 2.]))
    """
    if not curves or any(len(x) == 0 for x, _ in curves):
        return None
    start, end = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    places = np.unique(np.concatenate([x for x, _ in curves]))
    places = places[(places >= start) & (places <= end)]
    if len(places) == 0:
        return None
    if len(places) > points:
        places = places[np.linspace(0, len(places) - 1, points).round().astype(int)]
    values = np.stack([held(x, y, places) for x, y in curves])
    return Band(places, values.mean(0), values.min(0), values.max(0), len(curves))


def bands(curves: Curves, prices: Sequence[str], name: str) -> dict[str, Band]:
    """The band of every algorithm that has one, by label.

    A seed in which the column was never measured, or not finite from the start, has no curve.
    """
    drawn = {label: [c.against(prices, name) for c in seeds] for label, seeds in curves.items()}
    made = {label: band([pair for pair in p if len(pair[0])]) for label, p in drawn.items()}
    return {label: found for label, found in made.items() if found is not None}
