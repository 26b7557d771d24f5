"""How the runs of an experiment ended, as a table in plain text."""

from __future__ import annotations

import math

from bilevel.lab.experiments.curves import Histories, Sample, finals

_COLUMNS = ("validation_loss", "test_loss", "test_accuracy", "detection_auc")


def summary(histories: Histories) -> str:
    """A line for each label: steps, and the last values, as mean ± spread over seeds.

    Example:
        >>> line = {"seconds": 0.0, "step": 3, "validation_loss": 2.0, "test_accuracy": 0.5}
        >>> print(summary({"hoag": {0: [line]}}))
        label   steps   validation loss   test accuracy
        hoag    3       2 ± 0             0.5 ± 0
    """
    lines = [line for runs in histories.values() for history in runs.values() for line in history]
    columns = [name for name in _COLUMNS if all(name in line for line in lines)]
    ends = {name: finals(histories, name, math.inf) for name in columns}
    rows = [["label", "steps", *(name.replace("_", " ") for name in columns)]]
    for label, runs in histories.items():
        steps = Sample(tuple(float(history[-1]["step"]) for history in runs.values())).mean
        rows.append([label, f"{steps:.0f}", *(str(ends[name][label]) for name in columns)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
