"""The interactive comparison: one panel for each metric, with a choice of axes."""

from __future__ import annotations

from typing import Any

from bilevel.lab.comparison.comparison import Comparison
from bilevel.lab.comparison.scales import price_scale, value_scale
from bilevel.lab.curves import Band, bands
from bilevel.lab.drawing import traces
from bilevel.lab.quantities import Axis, Metric
from bilevel.report.blocks import Panel, Plots


def comparison_plots(comparison: Comparison) -> Plots:
    """Every metric against every axis, with the algorithms' means and ranges."""
    labels = list(comparison.curves)
    figures: dict[Metric, dict[str, Any]] = {metric: {} for metric in comparison.metrics}
    for axis in comparison.axes:
        found = {m: bands(comparison.curves, axis.columns, m.column) for m in figures}
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
    return Plots(panels, _caption(comparison), choice="Against")


def _caption(comparison: Comparison) -> str:
    start = "A logarithmic axis leaves out the start, at zero."
    if all(len(seeds) == 1 for seeds in comparison.curves.values()):
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

    seconds = axis.name == "seconds"
    prices = {
        "title": {"text": axis.title},
        "type": scale,
        "tickformat": "" if seconds else "~s",
        "hoverformat": ",.2~f" if seconds else ",.0f",
        "rangemode": "tozero",
    }
    values = {"type": value_scale(metric, found.values()), "hoverformat": ".4~g"}
    drawn = traces(found, labels, f"{metric.title.lower()} %{{y}} at %{{x}}")
    return go.Figure(data=drawn, layout={"xaxis": prices, "yaxis": values})
