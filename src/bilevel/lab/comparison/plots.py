"""The comparison drawn: by plotly on a page, with a choice of axes; by matplotlib for print."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bilevel.durable.folders import named_errors
from bilevel.lab.comparison.comparison import Comparison
from bilevel.lab.curves import Centre, bands
from bilevel.lab.drawing import line, printing, save
from bilevel.lab.quantities import Axis, Metric
from bilevel.report.bands import Band, traces
from bilevel.report.blocks import Panel, Plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDE_VALUES = 20.0
_WIDE_PRICES = 30.0


def value_scale(metric: Metric, bands: Iterable[Band]) -> str:
    """ "log" or "linear" for a metric's axis; never "log" where a value is not positive."""
    bands = list(bands)
    low = min((float(band.low.min()) for band in bands), default=0.0)
    high = max((float(band.high.max()) for band in bands), default=0.0)
    if low <= 0 or metric.scale == "linear":
        return "linear"
    return "log" if metric.scale == "log" or high > _WIDE_VALUES * low else "linear"


def price_scale(bands: Iterable[Band]) -> str:
    """ "log" where the curves end at very different prices, so that all can be seen."""
    ends = [float(band.grid[-1]) for band in bands if band.grid[-1] > 0]
    return "log" if ends and max(ends) > _WIDE_PRICES * min(ends) else "linear"


def comparison_plots(
    comparison: Comparison, centre: Centre = np.mean, middle: str = "mean"
) -> Plots:
    """Every metric against every axis, with the algorithms' means (or medians) and ranges."""
    labels = list(comparison.curves)
    figures: dict[Metric, dict[str, Any]] = {metric: {} for metric in comparison.metrics}
    for axis in comparison.axes:
        found = {m: bands(comparison.curves, axis.columns, m.column, centre) for m in figures}
        scale = price_scale(band for group in found.values() for band in group.values())
        for metric, group in found.items():
            figures[metric][axis.label] = _figure(labels, group, metric, axis, scale)
    panels = [
        Panel(
            title=metric.title,
            figure=views,
            alt=f"{metric.title} of {', '.join(labels)} as the runs proceed; "
            "the tables below have the final values.",
        )
        for metric, views in figures.items()
    ]
    return Plots(panels, _caption(comparison, middle), choice="Against")


def _caption(comparison: Comparison, middle: str) -> str:
    start = "A logarithmic axis leaves out the start, at zero."
    if all(len(seeds) == 1 for seeds in comparison.curves.values()):
        return f"One seed for each algorithm: the curves have no spread. {start}"
    return (
        f"Line: {middle} over the seeds. Band: from the lowest to the highest seed. Between two "
        "evaluations a seed keeps its last value; a curve ends where its shortest seed ends. "
        f"{start}"
    )


def _figure(
    labels: list[str], found: dict[str, Band], metric: Metric, axis: Axis, scale: str
) -> Any:
    import plotly.graph_objects as go

    seconds = axis.name == "seconds"
    prices = {
        "title": {"text": axis.title},
        "type": scale,
        "tickformat": "" if seconds else "~s",
        "hoverformat": ",.2~f" if seconds else ",.0f",
        "rangemode": "tozero",
    }
    kind = value_scale(metric, found.values())
    values = {"type": kind, "hoverformat": ".4~g", "exponentformat": "power"}
    drawn = traces(found, labels, f"{metric.title.lower()} %{{y}} at %{{x}}")
    return go.Figure(data=drawn, layout={"xaxis": prices, "yaxis": values})


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
