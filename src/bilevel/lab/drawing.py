"""Bands as matplotlib's lines, for print; `bilevel.report.bands` has plotly's, for a page."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bilevel.durable.files import replacing
from bilevel.report.bands import MARKERS, Band
from bilevel.report.palette import LIGHT_THEME, look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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


def printing() -> AbstractContextManager[None]:
    """Inside, matplotlib draws as journals want it."""
    import matplotlib

    return matplotlib.rc_context(_STYLE)


def line(axes: Axes, band: Band, index: int, label: str, drawstyle: str = "steps-post") -> Any:
    """Matplotlib's mean and range of one curve; a seed keeps its last value until the next."""
    style = look(index)
    if band.has_range:
        area: Any = {"color": style.colour, "alpha": 0.16, "linewidth": 0}
        area["step"] = "post" if drawstyle == "steps-post" else None
        axes.fill_between(band.grid, band.low, band.high, **area)
    # A few markers, at distances in the axes' size: apart also on a log scale.
    few = (0.03 * (index % 5), 0.18) if len(band.grid) > MARKERS else None
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
