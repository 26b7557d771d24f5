"""Draws the figures of this folder from results/: python docs/reproductions/plots.py [NAME ...]

The mean over seeds, and from the lowest to the highest seed: what the pages judge, to look at.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("agg")

from matplotlib import pyplot as plt
from matplotlib.ticker import NullFormatter

from bilevel.lab.curves import bands
from bilevel.lab.drawing import line, printing, save
from bilevel.lab.experiments import archive
from bilevel.lab.experiments.readings import COSTS, words

HERE = Path(__file__).parent
_ACCURACIES = ("train_accuracy", "test_accuracy")
METRICS = {
    "figure-2": _ACCURACIES,
    "figure-3": _ACCURACIES,
    "figure-4": ("test_loss", "test_accuracy"),
    "figure-5": ("train_loss", "test_loss"),
    "figure-6": ("train_loss", "test_loss"),
    "successors": ("validation_loss", "test_loss"),
}


def draw(name: str) -> None:
    """A row for each experiment; each metric against CPU seconds and against samples."""
    runs = archive.evidence(archive.read(HERE / "results" / f"{name}.json.gz"))
    sides = [(metric, cost) for metric in METRICS[name] for cost in COSTS]
    labels = sorted({label for evidence in runs.values() for label in evidence.curves})
    size = (2.9 * len(sides), 2.3 * len(runs) + 0.4)
    with printing():
        figure, grid = plt.subplots(len(runs), len(sides), figsize=size, squeeze=False)
        for row, (experiment, evidence) in zip(grid, runs.items(), strict=True):
            for axes, (metric, cost) in zip(row, sides, strict=True):
                found = bands(evidence.curves, COSTS[cost], metric)
                for index, label in enumerate(labels):
                    if label in found:
                        line(axes, found[label], index, label)
                axes.set(xlabel=cost, ylabel=words(metric), title=experiment)
                if metric not in _ACCURACIES:
                    axes.set(yscale="log")
                if METRICS[name] == _ACCURACIES:
                    axes.ticklabel_format(axis="x", scilimits=(-2, 4))
                else:
                    axes.set(xscale="log")
                    axes.xaxis.set_minor_formatter(NullFormatter())
            row[-1].legend(loc="center left", bbox_to_anchor=(1.02, 0.5))
        figure.tight_layout()
        with matplotlib.rc_context({"savefig.dpi": 110}):
            save(figure, HERE / f"{name}.png")
        plt.close(figure)


if __name__ == "__main__":
    for chosen in sys.argv[1:] or METRICS:
        draw(chosen)
