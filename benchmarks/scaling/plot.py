"""One panel a size: the time above, the memory below."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from bilevel.report.palette import LIGHT_THEME, look
from scaling.measuring import Curve
from scaling.studies import METHODS

COLUMNS = 5
DATA = {"dense": ("solid", "o"), "sparse": ("dashed", "s")}


def plot(curves: list[Curve], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    axes_names = list(dict.fromkeys(curve.study.axis for curve in curves))
    blocks = -(-(len(axes_names) + 1) // COLUMNS)  # one place is the legend's
    figure, grid = pyplot.subplots(
        2 * blocks, COLUMNS, figsize=(13, 4.6 * blocks), layout="constrained", squeeze=False
    )
    for panel in grid.flat:
        panel.set_axis_off()
    for number, name in enumerate(axes_names):
        row, column = 2 * (number // COLUMNS), number % COLUMNS
        own = [curve for curve in curves if curve.study.axis == name]
        _panel(grid[row][column], own, "seconds", row_title=column == 0)
        _panel(grid[row + 1][column], own, "MB", row_title=column == 0)
    _legend(grid[-2][-1], curves)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _panel(panel: Any, curves: list[Curve], unit: str, row_title: bool) -> None:
    panel.set_axis_on()
    panel.set_xscale("log", base=10)
    panel.set_yscale("log", base=10)
    for curve in curves:
        values = _values(curve, unit)
        if values:
            panel.plot(curve.study.sizes, values, **style(curve))
    _widen(panel)
    _linear_guide(panel)
    panel.set_title(f"{unit} against {curves[0].study.axis}", fontsize=9)
    panel.tick_params(labelsize=7, which="both")
    panel.grid(color=LIGHT_THEME["rule"], linewidth=0.5)


def _values(curve: Curve, unit: str) -> list[float]:
    if unit == "MB":
        return [max(0.05, each / 1e6) for each in curve.memory]
    return [statistics.median(each) for each in zip(*curve.seconds, strict=True)]


def style(curve: Curve) -> dict[str, Any]:
    """A colour an algorithm; dense data solid, sparse dashed."""
    line, marker = DATA[curve.study.data]
    colour = look(list(METHODS).index(curve.study.method)).colour
    return {"color": colour, "linestyle": line, "marker": marker, "markersize": 3, "linewidth": 1.2}


def _widen(panel: Any) -> None:
    """A decade at least in height, so that a flat curve looks flat; labels at decades only."""
    from matplotlib.ticker import NullFormatter

    low, high = panel.get_ylim()
    panel.set_ylim(low, max(high, 20 * low))
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.yaxis.set_minor_formatter(NullFormatter())


def _linear_guide(panel: Any) -> None:
    """A line of exponent 1 from the lower left."""
    (left, right), (low, high) = panel.get_xlim(), panel.get_ylim()
    panel.plot([left, right], [low, low * right / left], color=LIGHT_THEME["muted"], linewidth=0.8)
    panel.set_xlim(left, right)
    panel.set_ylim(low, high)


def _legend(panel: Any, curves: list[Curve]) -> None:
    from matplotlib.lines import Line2D

    seen: dict[str, Curve] = {f"{c.study.method}, {c.study.data}": c for c in curves}
    lines = [Line2D([], [], label=name, **style(curve)) for name, curve in sorted(seen.items())]
    lines.append(Line2D([], [], color=LIGHT_THEME["muted"], linewidth=0.8, label="exponent 1"))
    panel.legend(handles=lines, loc="upper left", fontsize=8, frameon=False)
