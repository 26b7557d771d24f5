"""Counts as curves against κ and 1/ε, on the page and in print."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bilevel.lab.complexity.fits import Trials, points
from bilevel.lab.complexity.studies import Study
from bilevel.lab.drawing import line, printing, save
from bilevel.lab.quantities import COUNTS
from bilevel.report import Panel, Plots
from bilevel.report.bands import Band, traces

_AXES = {"kappa": "κ", "epsilon": "1/ε"}


def bands(study: Study, trials: Trials, count: str, axis: str) -> dict[str, Band]:
    """By method, a count against κ for the smallest ε, or against 1/ε for the greatest κ.

    At each place the geometric mean, the lowest and the highest seed.
    """
    made = {}
    for method in study.methods:
        found = points(study, trials, method, count)
        if axis == "kappa":
            kept = [(p.kappa, p.count) for p in found if p.epsilon == study.epsilons[-1]]
        else:
            kept = [(1 / p.epsilon, p.count) for p in found if p.kappa == study.kappas[-1]]
        places = sorted({place for place, _ in kept})
        groups = [[value for x, value in kept if x == place] for place in places]
        means = [float(np.exp(np.mean(np.log(group)))) for group in groups]
        ends = (list(map(end, groups)) for end in (min, max))
        grid, mean, low, high = map(np.asarray, (places, means, *ends))
        made[method.title] = Band(grid, mean, low, high)
    return made


def page_plots(study: Study, trials: Trials) -> Plots:
    """Every count against both axes, for the page."""
    panels = [
        Panel(
            name,
            {title: _figure(study, trials, count, axis) for axis, title in _AXES.items()},
            f"{name} of each method against κ and against 1/ε; the table has the powers.",
        )
        for count, name in COUNTS.items()
    ]
    return Plots(
        panels,
        f"Against κ for ε = {study.epsilons[-1]:g}, against 1/ε for κ = {study.kappas[-1]:g}: the "
        "geometric mean over seeds, and the band from the lowest to the highest seed.",
        choice="Against",
    )


def write_figure(file: Path, study: Study, trials: Trials) -> None:
    """Each count against κ (above) and 1/ε (below), both axes logarithmic."""
    from matplotlib.figure import Figure

    with printing():
        figure = Figure(figsize=(9.5, 4.9), layout="constrained")
        grid = figure.subplots(2, len(COUNTS), sharey="row")
        for row, axis in zip(grid, _AXES, strict=True):
            for axes, count in zip(row, COUNTS, strict=True):
                drawn = bands(study, trials, count, axis).items()
                handles = [line(axes, b, i, name, "default") for i, (name, b) in enumerate(drawn)]
                axes.set(xscale="log", yscale="log", xlabel=_AXES[axis], title=COUNTS[count])
                places = _places(study, axis)
                axes.set_xticks(places, [f"{place:.3g}" for place in places])
                axes.minorticks_off()
        figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
        save(figure, file)


def _figure(study: Study, trials: Trials, count: str, axis: str) -> Any:
    import plotly.graph_objects as go

    places = _places(study, axis)
    ticks = {"tickvals": places, "ticktext": [f"{place:.3g}" for place in places]}
    layout = {
        "xaxis": {"title": {"text": _AXES[axis]}, "type": "log", "hoverformat": ".3~g", **ticks},
        "yaxis": {"type": "log", "hoverformat": ",.0f", "dtick": 1},
    }
    drawn = bands(study, trials, count, axis)
    return go.Figure(traces(drawn, list(drawn), "%{y} at %{x}", "linear"), layout)


def _places(study: Study, axis: str) -> Sequence[float]:
    return study.kappas if axis == "kappa" else [1 / epsilon for epsilon in study.epsilons]
