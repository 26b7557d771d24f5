"""The counts as a figure for print."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bilevel.lab.complexity.curves import AXES, Curve, curve
from bilevel.lab.complexity.fits import Trials
from bilevel.lab.complexity.measure import COUNTS
from bilevel.lab.complexity.studies import Study
from bilevel.lab.complexity.tables import NAMES
from bilevel.report import look

_DASHES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
_MARKERS = {"circle": "o", "square": "s", "diamond": "D", "triangle-up": "^"}


def write_figure(file: Path, study: Study, trials: Trials) -> None:
    """Each count against κ (above) and 1/ε (below), both axes logarithmic."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, 4.9), layout="constrained")
    grid = figure.subplots(2, len(COUNTS), sharey="row")
    for row, axis in zip(grid, AXES, strict=True):
        for axes, count in zip(row, COUNTS, strict=True):
            handles = [
                _draw(axes, curve(study, trials, method, count, axis), number, method.title)
                for number, method in enumerate(study.methods)
            ]
            axes.set(xscale="log", yscale="log", xlabel=AXES[axis], title=NAMES[count])
            inverse = [1 / epsilon for epsilon in study.epsilons]
            _mark(axes, study.kappas if axis == "kappa" else inverse)
            axes.grid(alpha=0.3)
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False)
    figure.savefig(file, format="png", dpi=140, metadata={"Software": None})


def _mark(axes: Any, places: Sequence[float]) -> None:
    axes.set_xticks(list(places), [f"{place:.3g}" for place in places])
    axes.minorticks_off()


def _draw(axes: Any, curve: Curve, number: int, title: str) -> Any:
    style = look(number)
    axes.fill_between(curve.x, curve.low, curve.high, color=style.colour, alpha=0.16, linewidth=0)
    (line,) = axes.plot(
        curve.x,
        curve.mean,
        color=style.colour,
        linestyle=_DASHES[style.dash],
        marker=_MARKERS[style.marker],
        markersize=4,
        linewidth=1.4,
        label=title,
    )
    return line
