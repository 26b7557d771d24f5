"""The report of a cleaning, as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

import bilevel
from bilevel.apps.cleaning.engine import Cleaning
from bilevel.apps.cleaning.request import Prepared
from bilevel.report import Code, Facts, Notice, Page, Panel, Plots, Section, Table, look
from bilevel.runs.result import Status

_SHOWN = 30
_COLUMNS = 4
_USE = """\
import numpy as np

model = np.load("model.npz")
# `rows` has a column for each of model["features"]: numbers as they are, NaN where there is none;
# for a category, as in colour_red, 1 in the rows that have it and 0 elsewhere.
rows = np.where(np.isnan(rows), model["fill"], rows)
scores = rows @ model["coefficients"] + model["intercept"]
print(model["classes"][scores.argmax(axis=1)])
"""


def write_report(
    path: Path, prepared: Prepared, found: Cleaning, table: pd.DataFrame, command: str
) -> None:
    """What was found, the evidence, and what was run."""
    rows, flagged = len(table), int(table.flagged.sum())
    lead = (
        f"Of {rows:,} rows, {flagged:,} ({flagged / rows:.0%}) have a label that is probably "
        f"wrong. On trusted rows that were held back, a linear model is right in "
        f"{found.accuracy_after:.1%} if fitted without them, and in "
        f"{found.accuracy_before:.1%} if fitted with them."
    )
    sections = [
        Section("How sure is it?", [*_notices(prepared, found), _distributions(found)]),
        Section("Accuracy before and after", [_accuracy(prepared, found)]),
        Section("The most suspicious rows", [_suspicious(prepared, table)]),
        Section("Which labels are confused", [_confusions(table)]),
        Section(
            "The run",
            [
                _curves(found),
                _facts(prepared, found),
                Code("The command", command),
                Code("How to use model.npz", _USE),
            ],
        ),
    ]
    Page(f"Labels of {prepared.request.train.name}", lead, sections).write(path)


def _notices(prepared: Prepared, found: Cleaning) -> list[Notice]:
    short = found.result.status in (Status.DIVERGED, Status.INTERRUPTED)
    ending = [found.result.message] if short else []
    return [Notice(f"Take care: {text}") for text in (*prepared.warnings, *ending)]


def _suspicious(prepared: Prepared, table: pd.DataFrame) -> Table:
    worst = table[table.flagged].sort_values("suspicion", ascending=False).head(_SHOWN)
    shown = prepared.train.features.iloc[:, :_COLUMNS]
    rows = [
        [int(row.row), _text(row.label), _text(row.likely_label), row.suspicion, row.weight]
        + [_text(value) for value in shown.loc[row.row]]
        for row in worst.itertuples()
    ]
    return Table(
        f"The {len(rows)} flagged rows with the least likely labels",
        ["row", "label", "likely label", "suspicion", "weight", *map(_text, shown.columns)],
        rows,
        "Rows are numbered as in the file, from 1 and without the header. Suspicion is one minus "
        "the probability of the label under the refitted model. All rows are in labels.csv.",
    )


def _text(value: Any) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 40 else text[:39] + "…"


def _distributions(found: Cleaning) -> Plots:
    panels = []
    for title, values, alt in (
        ("Suspicion", 1 - found.label_quality, "Histogram of suspicion, kept and flagged rows"),
        ("Learned weight σ(λ)", found.weights, "Histogram of weights, kept and flagged rows"),
    ):
        figure = go.Figure(layout={"barmode": "stack"})
        for i, (name, mask) in enumerate((("kept", ~found.flagged), ("flagged", found.flagged))):
            counts, edges = np.histogram(values[mask], bins=40, range=(0, 1))
            figure.add_bar(
                x=(edges[:-1] + edges[1:]) / 2,
                y=counts,
                name=name,
                legendgroup=name,
                marker_color=look(i).colour,
            )
        figure.update_xaxes(title=title.lower())
        figure.update_yaxes(title="rows")
        panels.append(Panel(title, figure, alt))
    return Plots(panels, "Wrong labels pile up at the right of the first plot.")


def _confusions(table: pd.DataFrame) -> Table:
    flagged = table[table.flagged]
    pairs = flagged.groupby(["label", "likely_label"]).size().sort_values(ascending=False)
    rows: list[list[str | float]] = [
        [_text(label), _text(likely), int(count)]
        for (label, likely), count in pairs.head(20).items()
    ]
    return Table("Flagged rows by given and likely label", ["label", "likely label", "rows"], rows)


def _accuracy(prepared: Prepared, found: Cleaning) -> Table:
    kept = int((~found.flagged).sum())
    return Table(
        "A linear model on trusted rows that were held back",
        ["fitted on", "rows", "accuracy"],
        [
            ["all rows as they came", len(found.flagged), found.accuracy_before],
            ["without the flagged rows", kept, found.accuracy_after],
        ],
        f"Both fits also use the {len(prepared.trusted_labels):,} trusted rows, less those that "
        "were held back.",
    )


def _curves(found: Cleaning) -> Plots:
    steps = [record.step for record in found.result.history]
    figure = go.Figure()
    trusted = [record.outer_value for record in found.result.history]
    for i, (name, values) in enumerate(
        (("trusted rows", trusted), ("trusted rows held back", found.held_back_loss))
    ):
        style = look(i)
        figure.add_scatter(
            x=steps, y=values, name=name, mode="lines+markers", line={"color": style.colour}
        )
    figure.update_xaxes(title="outer step")
    figure.update_yaxes(title="loss")
    caption = "The run stops when the rows that were held back gain no more."
    return Plots([Panel("Loss", figure, "Loss on trusted rows against the outer step")], caption)


def _facts(prepared: Prepared, found: Cleaning) -> Facts:
    request, counts = prepared.request, found.result.counts
    return Facts(
        {
            "rows to clean": len(prepared.labels),
            "trusted rows": len(prepared.trusted_labels),
            "features, after encoding": len(prepared.features.names),
            "classes": len(prepared.classes),
            "algorithm": request.algorithm,
            "outer steps": len(found.result.history),
            "how it ended": found.result.message,
            "ridge": request.ridge,
            "seed": request.seed,
            "seconds": f"{max((r.seconds for r in found.result.history), default=0):.1f}",
            "gradients of g, Hessian- and cross-vector products": f"{counts.gc_g:,}, "
            f"{counts.hv:,}, {counts.jv:,}",
            "bilevel": bilevel.__version__,
        },
        "What was run",
    )
