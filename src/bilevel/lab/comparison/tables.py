"""The tables of a comparison: final values, counts, and how each run ended."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from bilevel.lab.comparison.comparison import Comparison
from bilevel.lab.curves import Curve
from bilevel.lab.quantities import COUNTS, Metric
from bilevel.report.blocks import Cell, Row, Table

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_PLAIN_EXPONENTS = range(-3, 5)
_MOST_DIGITS = 4


def mean_and_spread(values: Sequence[float]) -> str:
    """The mean and the standard deviation (n - 1), to two digits of the latter.

    >>> mean_and_spread([0.91, 0.92, 0.93])
    '0.920 ± 0.010'
    >>> mean_and_spread([1.2e-6, 1.4e-6])
    '(1.30 ± 0.14) × 10⁻⁶'
    >>> mean_and_spread([0.25])
    '0.25'
    """
    mean = statistics.fmean(values)
    exponent = math.floor(math.log10(abs(mean))) if mean else 0
    exponent = 0 if exponent in _PLAIN_EXPONENTS else exponent
    unit = 10.0**exponent
    power = f" × 10{str(exponent).translate(_SUPERSCRIPTS)}" if exponent else ""
    if len(values) == 1:
        return f"{mean / unit:.4g}{power}"
    spread = statistics.stdev(values) / unit
    digits = min(max(1 - math.floor(math.log10(spread)), 0), _MOST_DIGITS) if spread else 3
    smallest = 10.0**-digits
    tiny = 0 < spread < smallest / 2
    text = (
        f"{mean / unit:.{digits}f} ± {'<' if tiny else ''}{smallest if tiny else spread:.{digits}f}"
    )
    return f"({text}){power}" if power else text


def final_values(comparison: Comparison) -> Table:
    """Each metric at the end of the runs."""
    columns = [_finals(comparison, metric) for metric in comparison.metrics]
    return Table(
        "Final values",
        ["Algorithm", "Seeds", *(metric.title for metric in comparison.metrics)],
        [
            [label, len(seeds), *(column[label] for column in columns)]
            for label, seeds in comparison.curves.items()
        ],
        note="Mean ± standard deviation over the seeds, at the last evaluation of each. "
        "The best mean of a column is bold.",
    )


def best(comparison: Comparison, metric: Metric) -> tuple[str, str] | None:
    """The algorithm with the best final mean of a metric, and that mean with its spread."""
    strong = [(name, c.text) for name, c in _finals(comparison, metric).items() if c.strong]
    return strong[0] if strong else None


def _finals(comparison: Comparison, metric: Metric) -> dict[str, Cell]:
    """By label; the best of several stand out."""
    cells = {label: _final(seeds, metric) for label, seeds in comparison.curves.items()}
    means = [c.order for c in cells.values() if c.order is not None and math.isfinite(c.order)]
    if len(cells) < 2 or not means or metric.better == "neither":
        return cells
    best = min(means) if metric.better == "low" else max(means)
    return {label: replace(cell, strong=cell.order == best) for label, cell in cells.items()}


def _final(curves: Sequence[Curve], metric: Metric) -> Cell:
    measured = [end for curve in curves if not math.isnan(end := curve.last(metric.column))]
    finite = [value for value in measured if math.isfinite(value)]
    if not measured:
        return Cell("–", math.inf)
    if len(finite) < len(measured):
        return Cell(f"not finite in {len(measured) - len(finite)} of {len(measured)}", math.inf)
    return Cell(mean_and_spread(finite), statistics.fmean(finite))


def counts(comparison: Comparison) -> Table:
    """What the runs cost."""
    names = {"step": "Outer steps", "seconds": "Seconds"} | {
        f"{column}{suffix}": f"{name}{unit}"
        for suffix, unit in (("", ""), ("_samples", ", samples"))
        for column, name in COUNTS.items()
    }
    rows: list[Row] = [
        [label, *(_price(seeds, column) for column in names)]
        for label, seeds in comparison.curves.items()
    ]
    return Table(
        "What the runs cost",
        ["Algorithm", *names.values()],
        rows,
        note="Means over the seeds at the end. Gc: gradients of f and g; JV: cross products "
        "∇x∇y g·v; HV: Hessian-vector products ∇²y g·v; each in calls, then in samples (calls "
        "times rows). Seconds exclude evaluation.",
    )


def _price(curves: Sequence[Curve], column: str) -> Cell:
    values = [curve.last(column) for curve in curves]
    if any(math.isnan(value) for value in values):
        return Cell("–", math.inf)
    mean = statistics.fmean(values)
    return Cell(f"{mean:,.1f}" if column == "seconds" else f"{mean:,.0f}", mean)


def endings(comparison: Comparison) -> Table:
    """How the runs ended, those of one kind together."""
    kinds: dict[tuple[str, str, str], list[str]] = {}
    for label, seeds in comparison.curves.items():
        for curve in seeds:
            status = (curve.status or "unfinished").replace("_", " ")
            kinds.setdefault((label, status, curve.message), []).append(str(curve.seed))
    rows: list[Row] = [
        [label, status, ", ".join(seeds), message]
        for (label, status, message), seeds in kinds.items()
    ]
    return Table("How the runs ended", ["Algorithm", "Status", "Seeds", "Message"], rows)
