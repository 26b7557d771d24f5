"""Bands as curves with one look: plotly's traces for a page, matplotlib's lines for print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bilevel.durable.files import replacing
from bilevel.lab.curves import Band, Vector
from bilevel.report.palette import LIGHT_THEME, Look, look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKERS_A_CURVE = 8
_DASHES = {
    "solid": "-",
    "dash": (0, (5, 2)),
    "dot": (0, (1, 1.4)),
    "dashdot": (0, (5, 1.5, 1, 1.5)),
}
_MARKERS = {
    "circle": "o",
    "square": "s",
    "diamond": "D",
    "triangle-up": "^",
    "x": "X",
    "cross": "P",
    "star": "*",
}
_STYLE: Any = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "axes.linewidth": 0.6,
    "axes.edgecolor": LIGHT_THEME["muted"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": LIGHT_THEME["rule"],
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.3,
    "lines.markersize": 3.6,
    "savefig.dpi": 300,
    "pdf.fonttype": 42,  # letters stay letters: journals ask for it
    "svg.fonttype": "none",
    "svg.hashsalt": "bilevel",  # the same runs give the same file
}
_DATELESS = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


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
    spread = {label: band for label, band in found.items() if band.seeds > 1}
    ranges = [t for label, band in spread.items() for t in _range(label, band, looks[label], shape)]
    return ranges + [
        _mean(label, band, looks[label], hover, shape) for label, band in found.items()
    ]


def _mean(label: str, band: Band, look: Look, hover: str, shape: str) -> dict[str, Any]:
    line = {"color": look.colour, "dash": look.dash, "width": 2, "shape": shape}
    few = {"size": 7, "maxdisplayed": _MARKERS_A_CURVE}
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


def printing() -> AbstractContextManager[None]:
    """Inside, matplotlib draws as journals want it."""
    import matplotlib

    return matplotlib.rc_context(_STYLE)


def line(axes: Axes, band: Band, index: int, label: str, drawstyle: str = "steps-post") -> Any:
    """Matplotlib's mean and range of one curve; a seed keeps its last value until the next."""
    style = look(index)
    if band.seeds > 1:
        area: Any = {"color": style.colour, "alpha": 0.16, "linewidth": 0}
        area["step"] = "post" if drawstyle == "steps-post" else None
        axes.fill_between(band.grid, band.low, band.high, **area)
    # A few markers, at distances in the axes' size: apart also on a log scale.
    few = (0.03 * (index % 5), 0.18) if len(band.grid) > _MARKERS_A_CURVE else None
    (drawn,) = axes.plot(
        band.grid,
        band.mean,
        color=style.colour,
        linestyle=_DASHES[style.dash],
        marker=_MARKERS[style.marker],
        markevery=few,
        markeredgecolor="white",
        markeredgewidth=0.4,
        drawstyle=drawstyle,
        label=label,
    )
    return drawn


def save(figure: Figure, file: Path) -> None:
    """Write a figure as its suffix says; the same figure gives the same bytes."""
    with replacing(file) as part:
        figure.savefig(part, metadata=_DATELESS[file.suffix])
