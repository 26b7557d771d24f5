"""Curves with a range around them, as plotly's traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bilevel.report.palette import Look, look

Vector = NDArray[np.float64]
MARKERS = 8  # of a curve


@dataclass(frozen=True)
class Band:
    """A curve, such as a mean over runs, and the lowest and highest value at each place."""

    grid: Vector
    mean: Vector
    low: Vector
    high: Vector

    @property
    def has_range(self) -> bool:
        return bool((self.low < self.high).any())


def traces(
    found: Mapping[str, Band], labels: Sequence[str], hover: str, shape: str = "hv"
) -> list[dict[str, Any]]:
    """Plotly's: the ranges of all labels, then their means above them.

    Args:
        found: the bands that there are.
        labels: of all curves of the page, which decide the looks.
        hover: what stands at the pointer, in plotly's template.
        shape: of the lines; "hv" keeps a value until the next.
    """
    looks = {label: look(index) for index, label in enumerate(labels)}
    spread = {label: band for label, band in found.items() if band.has_range}
    ranges = [t for label, band in spread.items() for t in _range(label, band, looks[label], shape)]
    return ranges + [
        _mean(label, band, looks[label], hover, shape) for label, band in found.items()
    ]


def _mean(label: str, band: Band, look: Look, hover: str, shape: str) -> dict[str, Any]:
    line = {"color": look.colour, "dash": look.dash, "width": 2, "shape": shape}
    few = {"size": 7, "maxdisplayed": MARKERS}
    marker = {"color": look.colour, "symbol": look.marker, **few}
    looks = {"mode": "lines+markers", "line": line, "marker": marker, "hovertemplate": hover}
    return _trace(label, band.grid, band.mean) | looks


def _range(label: str, band: Band, look: Look, shape: str) -> list[dict[str, Any]]:
    """The lowest seed, and the area from there up to the highest."""
    edge = {"mode": "lines", "hoverinfo": "skip", "line": {"width": 0, "shape": shape}}
    hidden, area = {"showlegend": False}, {"fill": "tonexty", "fillcolor": look.band}
    low, high = (_trace(label, band.grid, values) for values in (band.low, band.high))
    return [low | edge | hidden, high | edge | hidden | area]


def _trace(label: str, x: Vector, y: Vector) -> dict[str, Any]:
    """Five digits are more than a screen can show, and keep the page small."""
    short = {k: [float(f"{value:.5g}") for value in v] for k, v in (("x", x), ("y", y))}
    return {"type": "scatter", "name": label, "legendgroup": label, **short}
