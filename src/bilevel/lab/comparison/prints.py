"""The comparison as figures for print: the page's curves, colours and looks by matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bilevel.durable.folders import named_errors
from bilevel.lab.comparison.comparison import Comparison
from bilevel.lab.comparison.scales import price_scale, value_scale
from bilevel.lab.curves import bands
from bilevel.lab.drawing import line, printing, save
from bilevel.lab.quantities import Axis, Metric

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SINGLE_COLUMN = 3.25  # inches, as ICML sets its pages
_DOUBLE_COLUMN = 6.75
_COLUMNS = 3


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
    with printing(), named_errors(folder, act="write figures"):
        figures = {
            f"comparison-against-{axis.name}": draw(comparison, comparison.metrics, axis)
            for axis in comparison.axes
        }
        for metric in comparison.metrics:
            name = metric.column.replace("_", "-")
            figures[name] = draw(comparison, [metric], comparison.axes[0])
        folder.mkdir(parents=True, exist_ok=True)
        files = {folder / f"{name}.{end}": f for name, f in figures.items() for end in formats}
        for file, figure in files.items():
            save(figure, file)
    return list(files)


def draw(comparison: Comparison, metrics: Sequence[Metric], axis: Axis) -> Figure:
    """One figure: a metric in single column width, several in double."""
    from matplotlib.figure import Figure

    found = {m: bands(comparison.curves, axis.columns, m.column) for m in metrics}
    scale = price_scale(band for group in found.values() for band in group.values())
    alone = len(metrics) == 1
    columns = min(_COLUMNS, len(metrics))
    rows = -(-len(metrics) // columns)
    size = (_SINGLE_COLUMN, 2.4) if alone else (_DOUBLE_COLUMN, 0.4 + 1.75 * rows)
    figure = Figure(figsize=size, layout="constrained")
    places = figure.subplots(rows, columns, squeeze=False).flat
    handles: dict[str, Any] = {}
    for metric, axes in zip(metrics, places, strict=False):  # in this order, none is skipped
        for index, label in enumerate(comparison.curves):
            if label in found[metric]:
                handles.setdefault(label, line(axes, found[metric][label], index, label))
        _scale(axes, axis, scale, value_scale(metric, found[metric].values()))
        if alone:
            axes.set_ylabel(metric.title)
        else:
            axes.set_title(metric.title)
    for axes in places:  # those that are left
        axes.set_axis_off()
    title = "" if alone else comparison.experiment.get("title", "")
    figure.supxlabel(f"{axis.title}\n{title}" if title else axis.title, fontsize=8)
    figure.legend(
        handles=list(handles.values()),
        loc="outside upper center",
        ncols=min(len(handles), 3 if alone else 6),
        handlelength=2.6,
    )
    return figure


def _scale(axes: Axes, axis: Axis, price_scale: str, value_scale: str) -> None:
    from matplotlib.ticker import EngFormatter

    if price_scale == "log":
        axes.set_xscale("log", nonpositive="mask")
    elif axis.name != "seconds":
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_yscale(value_scale)
