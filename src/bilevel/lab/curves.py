"""Curves of runs: what was measured, readings from it, and the mean and range over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bilevel.report.bands import Band
from bilevel.report.bands import Vector as Vector

Centre = Callable[..., Any]
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


def time_to(curve: Curve, metric: str, level: float) -> float:
    """When a metric was first measured at or below a level; infinite if it never was.

    >>> curve = Curve("a", 0, {"seconds": np.array([0.0, 1.5]), "loss": np.array([2.3, 1.0])})
    >>> time_to(curve, "loss", 1.2), time_to(curve, "loss", 0.9)
    (1.5, inf)
    """
    reached = curve.column("seconds")[curve.column(metric) <= level]
    return float(next(iter(reached), math.inf))


def stepped(
    curve: Curve, metric: str, prices: Sequence[str] = ("seconds",)
) -> tuple[Vector, Vector]:
    """The prices and values from the first outer step on; what is not finite is the start's value.

    A run without a step keeps its start's value.

    >>> columns = {"step": [0, 1, 2], "seconds": [0, 1.5, 2], "loss": [2.3, 1.0, math.nan]}
    >>> curve = Curve("a", 0, {name: np.array(values, float) for name, values in columns.items()})
    >>> stepped(curve, "loss")
    (array([1.5, 2. ]), array([1. , 2.3]))
    """
    values, after = curve.column(metric), curve.column("step") >= 1
    start = values[:1]
    if not after.any():
        return np.array([math.inf]), start
    found = values[after]
    paid: Vector = np.sum([curve.column(price) for price in prices], axis=0)
    return paid[after], np.where(np.isfinite(found), found, start)


def lowest(curve: Curve, metric: str) -> float:
    """The lowest value from the first outer step on."""
    return float(stepped(curve, metric)[1].min())


def spent_until(
    curve: Curve, metric: str, level: float, prices: Sequence[str]
) -> tuple[float, bool]:
    """What was paid until an outer step brought a metric to a level, and True; else all, and False.

    >>> columns = {"step": [0, 1], "seconds": [0.0, 1.5], "loss": [2.3, 1.0]}
    >>> curve = Curve("a", 0, {name: np.array(values, float) for name, values in columns.items()})
    >>> spent_until(curve, "loss", 1.2, ["seconds"]), spent_until(curve, "loss", 0.9, ["seconds"])
    ((1.5, True), (1.5, False))
    """
    paid: Vector = np.sum([curve.column(price) for price in prices], axis=0)
    there = (curve.column("step") >= 1) & (curve.column(metric) <= level)
    found = paid[there] if there.any() else paid[-1:]
    return float(found[0]), bool(there.any())


def band(
    curves: Sequence[tuple[Vector, Vector]], points: int = _POINTS, centre: Centre = np.mean
) -> Band | None:
    """The mean of step-wise curves and their range, without inventing values.

    The grid consists of the places where some curve was measured, from the last start to the
    first end: no curve is prolonged. It is thinned evenly to `points`.

    Args:
        curves: pairs of places, not falling, and values.
        points: the most that the grid may have.
        centre: what stands for all seeds: their mean, or `np.median`.

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
    middle: Vector = centre(values, axis=0)
    return Band(places, middle, values.min(0), values.max(0))


def bands(
    curves: Curves, prices: Sequence[str], name: str, centre: Centre = np.mean
) -> dict[str, Band]:
    """The band of every algorithm that has one, by label.

    A seed in which the column was never measured, or not finite from the start, has no curve.
    """
    drawn = {label: [c.against(prices, name) for c in seeds] for label, seeds in curves.items()}
    some = {label: [pair for pair in p if len(pair[0])] for label, p in drawn.items()}
    made = {label: band(pairs, centre=centre) for label, pairs in some.items()}
    return {label: found for label, found in made.items() if found is not None}
