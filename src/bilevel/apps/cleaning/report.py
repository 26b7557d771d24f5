"""The report of a cleaning, as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import bilevel
from bilevel.apps.cleaning import words
from bilevel.apps.cleaning.columns import Kind
from bilevel.apps.cleaning.numbers import NumberFindings
from bilevel.apps.cleaning.request import Prepared
from bilevel.apps.cleaning.words import Found, noun
from bilevel.report import Block, Code, Facts, Notice, Page, Section, Table

_SHOWN, _COLUMNS, _LONG = 50, 8, 160
_MEANING = (
    "Rows are numbered as in the file, from 1 and without the header. Suspicion is the probability "
    "that it is wrong, if the models are right about how labels go wrong. All rows are in the "
    "table beside this page."
)


def write_report(path: Path, prepared: Prepared, found: Found, command: str) -> None:
    """What was found, the evidence, and what was run."""
    lead = " ".join(words.summary(found, prepared.request.annotators))
    notices: list[Block] = [
        Notice(text[:1].upper() + text[1:]) for text in (*words.cautions(found), *prepared.warnings)
    ]
    sections = [
        Section("How sure is it?", [*notices, _histogram(found)]),
        Section("The most suspicious rows", [_suspicious(prepared, found)]),
        *_confusions(prepared, found),
        Section("What the columns were taken for", [_columns(prepared)]),
        Section("What was run", [_facts(prepared, found), Code("The command", command)]),
    ]
    Page(f"Labels of {prepared.request.train.name}", lead, sections).write(path)


def shown_columns(prepared: Prepared, most: int) -> list[Any]:
    """The columns that a reader needs first: texts, then what else was used."""
    used = [column for column in prepared.columns if column.kind is not Kind.IGNORED]
    return [column.name for column in sorted(used, key=lambda c: c.kind is not Kind.TEXT)][:most]


def cell(value: Any, long: int = _LONG) -> str:
    """A value as people read it."""
    if value is None or (np.isscalar(value) and pd.isna(value)):
        return ""
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= long else text[: long - 1] + "…"


def most_suspicious(found: Found, most: int) -> list[int]:
    """The places of the flagged rows, the worst first."""
    order = np.argsort(-found.wrong, kind="stable")
    return [int(i) for i in order[found.flagged[order]][:most]]


def _suspicious(prepared: Prepared, found: Found) -> Table:
    names = shown_columns(prepared, _COLUMNS)
    flagged = most_suspicious(found, _SHOWN)
    cells = prepared.file.written[names].iloc[flagged].to_numpy(object)
    rows: list[list[str | float]] = [
        [
            i + 1,
            cell(prepared.labels[i]),
            cell(found.likely[i]),
            float(found.wrong[i]),
            *map(cell, row),
        ]
        for i, row in zip(flagged, cells, strict=True)
    ]
    one = noun(found)[:-1]
    heads = ["row", one, f"likely {one}", "suspicion", *map(cell, names)]
    title = f"The {len(rows)} flagged rows with the least likely {one}s"
    return Table(title, heads, rows, _MEANING)


def _histogram(found: Found) -> Table:
    wrong, flagged = found.wrong[found.doubtful], found.flagged[found.doubtful]
    counts, those = (np.histogram(part, 10, (0, 1))[0] for part in (wrong, wrong[flagged]))
    rows: list[list[str | float]] = [
        [f"{10 * j}% to {10 * j + 10}%", int(counts[j]), int(those[j])] for j in range(10)
    ]
    note = "Where most rows are in the first and the last line, right and wrong are easy to tell."
    heads = ["suspicion", "rows", "flagged"]
    return Table(f"How suspicious the {noun(found)} are", heads, rows, note)


def _confusions(prepared: Prepared, found: Found) -> list[Section]:
    if isinstance(found, NumberFindings):
        return []
    flagged = pd.DataFrame({"label": prepared.labels, "likely": found.likely})[found.flagged]
    pairs = flagged.groupby(["label", "likely"]).size().sort_values(ascending=False)
    rows: list[list[str | float]] = [
        [cell(label), cell(likely), int(count)] for (label, likely), count in pairs.head(20).items()
    ]
    heads = ["label", "likely label", "rows"]
    table = Table("Flagged rows by given and likely label", heads, rows)
    return [Section("Which labels are confused", [table])]


def _columns(prepared: Prepared) -> Table:
    rows = [[cell(c.name), str(c.kind), c.note] for c in prepared.columns[:1000]]
    note = "Overrule it with --text, --category or --ignore and the column's name."
    return Table("Columns", ["column", "taken for", "why"], rows, note)


def _facts(prepared: Prepared, found: Found) -> Facts:
    return Facts(
        {
            "file": prepared.file.words,
            "rows to judge": int(found.doubtful.sum()),
            "trusted rows": int(found.trusted.sum()),
            f"different {noun(found)}": len(set(prepared.labels) - {None}),
            "seed": prepared.request.seed,
            "bilevel": bilevel.__version__,
        },
        "What was read",
    )
