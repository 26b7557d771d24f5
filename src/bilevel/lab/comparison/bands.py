"""Curves of several seeds as one mean with its spread, without inventing values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bilevel.lab.comparison.runs import Trial, Vector

_POINTS = 200


@dataclass(frozen=True)
class Band:
    """The mean over seeds and the lowest and highest seed, on one grid."""

    grid: Vector
    mean: Vector
    low: Vector
    high: Vector
    seeds: int


def held(x: Vector, values: Vector, grid: Vector) -> Vector:
    """At each point of the grid, the last value that was measured at or before it.

    >>> held(np.array([0.0, 2.0, 5.0]), np.array([9.0, 4.0, 1.0]), np.array([0.0, 1.9, 2.0, 5.0]))
    array([9., 9., 4., 1.])
    """
    held_values: Vector = values[np.searchsorted(x, grid, side="right") - 1]
    return held_values


def curve(trial: Trial, columns: Sequence[str], column: str) -> tuple[Vector, Vector]:
    """A column of a trial against the sum of others, up to the first value that is not finite.

    Lines where it was not measured are passed over.
    """
    missing = np.full(len(next(iter(trial.columns.values()))), np.nan)
    x: Vector = np.sum([trial.columns.get(name, missing) for name in columns], axis=0)
    values = trial.columns.get(column, missing)
    measured = ~np.isnan(x) & ~np.isnan(values)
    x, values = x[measured], values[measured]
    end = int(np.isfinite(values).cumprod().sum())
    return x[:end], values[:end]


def band(curves: Sequence[tuple[Vector, Vector]], points: int = _POINTS) -> Band | None:
    """The mean of step-wise curves and their range.

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


def bands(
    trials: dict[str, tuple[Trial, ...]], columns: Sequence[str], column: str
) -> dict[str, Band]:
    """The band of every algorithm that has one, by label.

    A seed in which the column was never measured, or not finite from the start, has no curve.
    """
    found = {}
    for label, seeds in trials.items():
        curves = [curve(trial, columns, column) for trial in seeds]
        made = band([pair for pair in curves if len(pair[0])])
        if made is not None:
            found[label] = made
    return found
