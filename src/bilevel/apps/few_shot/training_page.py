"""The report of a few-shot training, as one HTML page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go

import bilevel
from bilevel import report
from bilevel.apps.few_shot.run_folder import Line
from bilevel.apps.few_shot.scores import percent
from bilevel.apps.few_shot.settings import Settings
from bilevel.report.bands import Band, traces

_AXES = {"Outer steps": "step", "Seconds": "seconds"}
_TITLES = {"step": "outer steps", "seconds": "seconds, evaluation excluded"}
_CURVES = {"validation classes": "validation", "training classes": "train"}


def write_training_page(
    file: Path,
    settings: Settings,
    history: Sequence[Line],
    notices: Sequence[str],
    ending: str,
    command: str,
) -> None:
    """The learning curve, and what was run.

    Args:
        file: to write.
        settings: of the training.
        history: its validations.
        notices: what the reader must not miss.
        ending: how it ended.
        command: as typed.
    """
    s = settings
    title = f"{s.algorithm} on {s.data}, {s.ways}-way {s.shots}-shot"
    curves: list[report.Block] = [_curves(history, s), _table(history)] if history else []
    sections = [
        report.Section("Learning curve", [*map(report.Notice, notices), *curves]),
        report.Section("What was run", [_facts(s, ending), report.Code("The command", command)]),
    ]
    report.Page(title, _lead(history, s), sections).write(file)


def _lead(history: Sequence[Line], settings: Settings) -> str:
    if not history:
        return "Accuracy has not been measured yet."
    best, last = max(history, key=lambda line: line.validation_accuracy), history[-1]
    lead = (
        f"At outer step {last.step:,}, after {last.seconds:,.1f} seconds of training. The highest "
        f"accuracy on {settings.validation_tasks} tasks of the validation classes is "
        f"{_accuracy(best, 'validation')}, at step {best.step:,}."
    )
    if len(history) == 1:
        return lead
    return (
        f"{lead} As the best of {len(history)}, it is a little too good: report the accuracy on "
        "the test classes, by bilevel few-shot evaluate."
    )


def _accuracy(line: Line, split: str) -> str:
    return percent(getattr(line, f"{split}_accuracy"), getattr(line, f"{split}_interval"))


def _curves(history: Sequence[Line], settings: Settings) -> report.Plots:
    accuracy = {name: _accuracy_figure(history, axis) for name, axis in _AXES.items()}
    loss = {name: _loss_figure(history, axis) for name, axis in _AXES.items()}
    return report.Plots(
        [
            report.Panel(
                "Accuracy", accuracy, "Accuracy on validation and training classes by step"
            ),
            report.Panel("Loss", loss, "Loss on the training batches by step"),
        ],
        f"Accuracy: mean over {settings.validation_tasks} tasks of classes that are not trained on "
        "(validation) and that are (training), the same tasks at each point; the band is the 95 % "
        "interval. Loss: the cross-entropy of query images, mean over training batches since the "
        "point before.",
        choice="Against",
    )


def _accuracy_figure(history: Sequence[Line], axis: str) -> Any:
    def band(split: str) -> Band:
        names = axis, f"{split}_accuracy", f"{split}_interval"
        x, mean, half = (np.array([getattr(line, name) for line in history]) for name in names)
        return Band(x, mean, mean - half, mean + half)

    found = {name: band(split) for name, split in _CURVES.items()}
    return _figure(found, axis, ".0%", "%{y:.2%} at %{x}")


def _loss_figure(history: Sequence[Line], axis: str) -> Any:
    known = [line for line in history if line.loss is not None]
    x, y = (np.array([getattr(line, name) for line in known]) for name in (axis, "loss"))
    return _figure({"training classes": Band(x, y, y, y)}, axis, "", "%{y:.4f} at %{x}")


def _figure(found: Mapping[str, Band], axis: str, tickformat: str, hover: str) -> Any:
    across = {"title": {"text": _TITLES[axis]}, "rangemode": "tozero"}
    layout = {"xaxis": across, "yaxis": {"tickformat": tickformat, "rangemode": "nonnegative"}}
    return go.Figure(traces(found, list(_CURVES), hover, "linear"), layout)


def _table(history: Sequence[Line]) -> report.Table:
    best = max(history, key=lambda line: line.validation_accuracy)
    rows: list[list[report.Cell | str | float]] = [
        [
            line.step,
            report.Cell(f"{line.seconds:,.1f}", line.seconds),
            report.Cell("–", float("inf"))
            if line.loss is None
            else report.Cell(f"{line.loss:.4f}", line.loss),
            report.Cell(_accuracy(line, "train"), line.train_accuracy),
            report.Cell(
                _accuracy(line, "validation"), line.validation_accuracy, strong=line is best
            ),
        ]
        for line in history
    ]
    return report.Table(
        "Every validation",
        ["step", "seconds", "loss", "training classes", "validation classes"],
        rows,
        "Bold: the model in best.pt.",
    )


def _facts(settings: Settings, ending: str) -> report.Facts:
    s = settings
    channels, height, width = s.image_shape
    options = {name.replace("_", " "): value for name, value in s.options.items()}
    return report.Facts(
        {
            "data": s.data,
            "images": f"{height}×{width}, {channels} channel{'s' * (channels > 1)}",
            "algorithm": f"{s.algorithm}: {s.method.summary}",
            **options,
            "tasks": f"{s.ways}-way {s.shots}-shot, {s.queries} query images a class",
            "tasks a step": s.batch,
            "network": f"{s.network}, {s.filters} filters",
            "batch normalisation": s.statistics,
            "seed": s.seed,
            "how it ended": ending,
            "bilevel": bilevel.__version__,
        }
    )
