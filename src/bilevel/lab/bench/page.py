"""What a bench found: a table for the terminal, and a page of curves."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import median

import numpy as np

from bilevel.lab.bench.job import FIRST_USE, Bench, columns
from bilevel.lab.comparison.comparison import Comparison
from bilevel.lab.comparison.plots import comparison_plots
from bilevel.lab.curves import Curves, time_to
from bilevel.lab.plain_files import read_json
from bilevel.lab.quantities import METRICS, Metric
from bilevel.report.blocks import Block, Cell, Row, Section, Table
from bilevel.report.page import Page

_PARTS = (1e-1, 1e-2, 1e-3)  # of the value at the start
_UNKNOWN = "value", "outer_value"
_TITLES = {metric.column: metric.title for metric in METRICS}


def table(bench: Bench, curves: Curves, folder: Path) -> Table:
    """Seconds to parts of the start's value, medians over the seeds; and what it costs to begin."""
    every = [curve for seeds in curves.values() for curve in seeds]
    ranked, first = columns(every), read_json(folder / FIRST_USE, dict)
    start = float(np.median([curve.column(ranked)[0] for curve in every]))
    # Where the lowest value is not known, it is the lowest that any run has found.
    ends = [value for curve in every for value in curve.column(ranked) if math.isfinite(value)]
    least = min(ends, default=0.0) if ranked in _UNKNOWN else 0.0
    levels = [least + (start - least) * part for part in _PARTS]
    rows: list[Row] = []
    for label, seeds in curves.items():
        times = [median(time_to(curve, ranked, level) for curve in seeds) for level in levels]
        last = median(curve.last(ranked) for curve in seeds)
        steps = median(curve.last("seconds") / max(1, curve.last("step")) for curve in seeds)
        rows.append(
            [
                label,
                len(seeds),
                *(Cell("never" if math.isinf(t) else f"{t:.3g}", t) for t in times),
                Cell(f"{last:.3g}", last),
                Cell(f"{1e6 * steps:,.{0 if steps > 1e-4 else 1}f}", steps),
                Cell(f"{(used := _number(first.get(label))):.1f}", used),
            ]
        )
    near = ranked in _UNKNOWN
    titles = [
        f"s to {100 * p:g} %" if near else f"s to {v:.2g}"
        for p, v in zip(_PARTS, levels, strict=True)
    ]
    gap = "10 % means: a tenth of the way from the lowest value that any run found to the start. "
    return Table(
        f"{bench.name}: {_TITLES.get(ranked, ranked)}, {bench.budget}",
        ["Method", "Seeds", *titles, "At the end", "µs a step", "First use, s"],
        rows,
        note=f"{gap if near else ''}Medians over the seeds. Evaluation and first use are off the "
        "clock; first use has what is compiled, once on a machine.",
    )


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


def write_page(file: Path, bench: Bench, curves: Curves, found: Table, how: Block) -> None:
    """Curves against seconds and samples, and the table."""
    more = tuple(Metric(name, name, "neither", "linear") for name in bench.metrics)
    shown = Comparison((), {}, {label: list(seeds) for label, seeds in curves.items()}, [], more)
    sections = [
        Section("Against the clock", [comparison_plots(shown, np.median, "median"), found]),
        Section("How it was measured", [how]),
    ]
    lead = f"{', '.join(curves)} on {bench.name}, with {bench.seeds} seeds each."
    Page(f"Bench: {bench.name}", lead, sections).write(file)


def lines(found: Table) -> list[list[str]]:
    """The table as text."""
    return [list(found.columns), *([cell.text for cell in row] for row in found.cells)]
