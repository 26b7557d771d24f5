"""The comparison as figures for print: the page's curves, colours and looks by matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bilevel.errors import UserError
from bilevel.lab.comparison.bands import Band, bands
from bilevel.lab.comparison.comparison import Comparison
from bilevel.lab.comparison.quantities import Axis, Metric
from bilevel.lab.comparison.scales import price_scale, value_scale
from bilevel.report.palette import LIGHT_THEME, look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SINGLE_COLUMN = 3.25  # inches, as ICML sets its pages
_DOUBLE_COLUMN = 6.75
_COLUMNS = 3
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
_DATELESS = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}


def write_figures(comparison: Comparison, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Write `comparison-against-AXIS` in double column width, `METRIC` in single column width.

    The former bear the experiment's title.

    Args:
        comparison: what to draw.
        folder: where to; it is made if need be.
        formats: of "png", "svg", "pdf".

    Returns:
        The files.

    Raises:
        UserError: the folder cannot be written.
    """
    import matplotlib

    with matplotlib.rc_context(_STYLE):
        figures = {
            f"comparison-against-{axis.name}": draw(comparison, comparison.metrics, axis)
            for axis in comparison.axes
        }
        for metric in comparison.metrics:
            name = metric.column.replace("_", "-")
            figures[name] = draw(comparison, [metric], comparison.axes[0])
        files = []
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, figure in figures.items():
                for suffix in formats:
                    file = folder / f"{name}.{suffix}"
                    figure.savefig(file, metadata=_DATELESS[suffix])
                    files.append(file)
        except OSError as error:
            raise UserError(
                f"cannot write figures to {folder}: {error.strerror}; choose another folder"
            ) from error
    return files


def draw(comparison: Comparison, metrics: Sequence[Metric], axis: Axis) -> Figure:
    """One figure: a metric in single column width, several in double."""
    from matplotlib.figure import Figure

    found = {m: bands(comparison.trials, axis.columns, m.column) for m in metrics}
    scale = price_scale(band for group in found.values() for band in group.values())
    columns = min(_COLUMNS, len(metrics))
    rows = -(-len(metrics) // columns)
    width = _SINGLE_COLUMN if len(metrics) == 1 else _DOUBLE_COLUMN
    height = 2.4 if len(metrics) == 1 else 0.4 + 1.75 * rows
    figure = Figure(figsize=(width, height), layout="constrained")
    places = figure.subplots(rows, columns, squeeze=False).flat
    handles: dict[str, Any] = {}
    for metric, axes in zip(metrics, places, strict=False):  # in this order, none is skipped
        for index, label in enumerate(comparison.trials):
            if label in found[metric]:
                handles.setdefault(label, _curve(axes, found[metric][label], index, label))
        _scale(axes, axis, scale, value_scale(metric, found[metric].values()))
        if len(metrics) == 1:
            axes.set_ylabel(metric.title)
        else:
            axes.set_title(metric.title)
    for axes in places:  # those that are left
        axes.set_axis_off()
    title = comparison.experiment.get("title", "") if len(metrics) > 1 else ""
    figure.supxlabel(f"{axis.title}\n{title}" if title else axis.title, fontsize=8)
    figure.legend(
        handles=list(handles.values()),
        loc="outside upper center",
        ncols=min(len(handles), 3 if len(metrics) == 1 else 6),
        handlelength=2.6,
    )
    return figure


def _curve(axes: Axes, band: Band, index: int, label: str) -> Any:
    style = look(index)
    if band.seeds > 1:
        axes.fill_between(
            band.grid,
            band.low,
            band.high,
            step="post",
            color=style.colour,
            alpha=0.16,
            linewidth=0,
        )
    (line,) = axes.plot(
        band.grid,
        band.mean,
        drawstyle="steps-post",  # a seed keeps its last value until the next
        color=style.colour,
        linestyle=_DASHES[style.dash],
        marker=_MARKERS[style.marker],
        markevery=(0.03 * (index % 5), 0.18),  # of the axes' size: apart also on a log scale
        markeredgecolor="white",
        markeredgewidth=0.4,
        label=label,
    )
    return line


def _scale(axes: Axes, axis: Axis, price_scale: str, value_scale: str) -> None:
    from matplotlib.ticker import EngFormatter

    if price_scale == "log":
        axes.set_xscale("log", nonpositive="mask")
    elif axis.name != "seconds":
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_yscale(value_scale)
