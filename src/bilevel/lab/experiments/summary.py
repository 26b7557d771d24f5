"""How the runs of an experiment ended, as a table in plain text."""

from __future__ import annotations

from bilevel.lab.curves import Curves, finals
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
        hoag    3       2 ± 0             0.5 ± 0
    """
    known = set.intersection(*(set(c.columns) for seeds in curves.values() for c in seeds))
    names = [metric.column for metric in METRICS if metric.headline and metric.column in known]
    steps, *ends = (finals(curves, name) for name in ("step", *names))
    rows = [["label", "steps", *(name.replace("_", " ") for name in names)]]
    rows += [
        [label, f"{steps[label].mean:.0f}", *(str(end[label]) for end in ends)] for label in curves
    ]
    return aligned(rows)
