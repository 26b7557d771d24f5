"""The interactive comparison: one panel a metric, one choice an axis."""

from __future__ import annotations

from typing import Any

from bilevel.lab.comparison.bands import Band, bands
from bilevel.lab.comparison.comparison import Comparison
from bilevel.lab.comparison.quantities import Axis, Metric
from bilevel.lab.comparison.runs import Vector
from bilevel.lab.comparison.scales import price_scale, value_scale
from bilevel.report.blocks import Panel, Plots
from bilevel.report.palette import Look, look

_MARKERS_A_CURVE = 8


def comparison_plots(comparison: Comparison) -> Plots:
    """Every metric against every axis, with the algorithms' means and ranges."""
    figures: dict[Metric, dict[str, Any]] = {metric: {} for metric in comparison.metrics}
    for axis in comparison.axes:
        found = {m: bands(comparison.trials, axis.columns, m.column) for m in figures}
        scale = price_scale(band for group in found.values() for band in group.values())
        for metric, group in found.items():
            figures[metric][axis.label] = _figure(
                list(comparison.trials), group, metric, axis, scale
            )
    names = ", ".join(comparison.trials)
    return Plots(
        panels=[
            Panel(
                title=metric.title,
                figure=views,
                alt=f"{metric.title} of {names} as the runs proceed; "
                "the tables below have the final values.",
            )
            for metric, views in figures.items()
        ],
        caption=_caption(comparison),
        choice="Against",
    )


def _caption(comparison: Comparison) -> str:
    start = "A logarithmic axis leaves out the start, at zero."
    if all(len(seeds) == 1 for seeds in comparison.trials.values()):
        return f"One seed for each algorithm: the curves have no spread. {start}"
    return (
        "Line: mean over the seeds. Band: from the lowest to the highest seed. Between two "
        "evaluations a seed keeps its last value; a curve ends where its shortest seed ends. "
        f"{start}"
    )


def _figure(
    labels: list[str], found: dict[str, Band], metric: Metric, axis: Axis, scale: str
) -> Any:
    import plotly.graph_objects as go

    looks = {label: look(index) for index, label in enumerate(labels)}
    spreads = [
        trace
        for label, band in found.items()
        if band.seeds > 1
        for trace in _spread(label, band, looks[label])
    ]
    means = [_mean(label, band, looks[label], metric) for label, band in found.items()]
    prices = {
        "title": {"text": axis.title},
        "type": scale,
        "tickformat": "" if axis.name == "seconds" else "~s",
        "hoverformat": ",.2~f" if axis.name == "seconds" else ",.0f",
        "rangemode": "tozero",
    }
    values = {"type": value_scale(metric, found.values()), "hoverformat": ".4~g"}
    return go.Figure(data=spreads + means, layout={"xaxis": prices, "yaxis": values})


def _mean(label: str, band: Band, look: Look, metric: Metric) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": label,
        "legendgroup": label,
        "x": _numbers(band.grid),
        "y": _numbers(band.mean),
        "line": {"color": look.colour, "dash": look.dash, "width": 2, "shape": "hv"},
        "marker": {
            "color": look.colour,
            "symbol": look.marker,
            "size": 7,
            "maxdisplayed": _MARKERS_A_CURVE,
        },
        "hovertemplate": f"{metric.title.lower()} %{{y}} at %{{x}}",
    }


def _spread(label: str, band: Band, look: Look) -> list[dict[str, Any]]:
    """The lowest seed, and the area from there up to the highest."""
    edge = {
        "type": "scatter",
        "mode": "lines",
        "name": label,
        "legendgroup": label,
        "showlegend": False,
        "x": _numbers(band.grid),
        "line": {"width": 0, "shape": "hv"},
        "hoverinfo": "skip",
    }
    area = {"fill": "tonexty", "fillcolor": look.band}
    return [edge | {"y": _numbers(band.low)}, edge | {"y": _numbers(band.high)} | area]


def _numbers(values: Vector) -> list[float]:
    """Five digits are more than a screen can show, and keep the page small."""
    return [float(f"{value:.5g}") for value in values]
