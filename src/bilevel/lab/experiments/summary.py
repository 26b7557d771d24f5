"""How the runs of an experiment ended, as a table in plain text."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from bilevel.lab.comparison.tables import mean_and_spread
from bilevel.lab.curves import Curve, Curves
from bilevel.lab.quantities import METRICS
from bilevel.lab.text_table import aligned


def summary(curves: Curves) -> str:
    """A line for each label: steps, and the last values, as mean ± spread over seeds.

    Example:
        >>> import numpy as np
        >>> from bilevel.lab.curves import Curve
        >>> columns = {"step": [3], "seconds": [0], "validation_loss": [2], "test_accuracy": [0.5]}
        >>> line = {name: np.array(values, float) for name, values in columns.items()}
        >>> print(summary({"hoag": [Curve("hoag", 0, line)]}))
        label   steps   validation loss   test accuracy
        hoag    3       2                 0.5
    """
    known = set.intersection(*(set(c.columns) for seeds in curves.values() for c in seeds))
    names = [metric.column for metric in METRICS if metric.headline and metric.column in known]
    rows = [["label", "steps", *(name.replace("_", " ") for name in names)]]
    for label, seeds in curves.items():
        steps = statistics.fmean(curve.last("step") for curve in seeds)
        rows.append([label, f"{steps:.0f}", *(_last(seeds, name) for name in names)])
    return aligned(rows)


def _last(seeds: Sequence[Curve], name: str) -> str:
    """Of the last evaluations, even where they were lost: a run that diverged must be seen."""
    values = [float(curve.column(name)[-1]) for curve in seeds]
    finite = [value for value in values if math.isfinite(value)]
    lost = f"not finite in {len(values) - len(finite)} of {len(values)} seeds"
    if len(finite) == len(values):
        return mean_and_spread(finite)
    return f"{mean_and_spread(finite)} ({lost})" if finite else lost
