"""The jobs of `bilevel clean` and `bilevel predict`: nothing is written before all succeeded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bilevel.apps.cleaning.columns import Array, Column, Kind, leaks, recognise
from bilevel.apps.cleaning.counting import ENOUGH
from bilevel.apps.cleaning.engine import find_wrong_labels
from bilevel.apps.cleaning.files import read
from bilevel.apps.cleaning.given import File, Told
from bilevel.apps.cleaning.labels import (
    apart,
    copies,
    equal_but_for_case,
    equal_numbers,
    numbers_of,
    spelled_alike,
    votes_of,
    with_majority,
)
from bilevel.apps.cleaning.model import load, predict, save
from bilevel.apps.cleaning.numbers import NumberFindings, find_wrong_numbers
from bilevel.apps.cleaning.report import write_report
from bilevel.apps.cleaning.request import Prepared, Request
from bilevel.apps.cleaning.review import write_review
from bilevel.apps.cleaning.rounds import Progress
from bilevel.apps.cleaning.trusted import Known, with_trusted
from bilevel.apps.cleaning.words import Found
from bilevel.apps.cleaning.writing import FORMATS, WRITTEN, free, rounded, write
from bilevel.durable.files import replacing
from bilevel.durable.folders import check_file, check_folder, filled
from bilevel.errors import UserError, listed, quoted

TASKS = ("auto", "classification", "regression")
_AS_NUMBERS = "the labels are judged as numbers; if they are classes, say --task classification"
_MOST_CLASSES, _FEW_VALUES = 1000, 20


def prepare(request: Request) -> Prepared:
    """Read and check all input, before any work."""
    if request.output_format and format_of(request) not in WRITTEN:
        formats = ", ".join(name[1:] for name in WRITTEN)
        raise UserError(
            f"--output-format {quoted(request.output_format)} is unknown: choose from {formats}"
        )
    check_folder(request.output, request.force)
    given = (path.resolve() for path in (request.train, Path(request.trusted or "")))
    if any(p.parent == request.output.resolve() and p.name.startswith("labels.") for p in given):
        raise UserError(f"{request.output} holds a table that is read: name another folder")
    file, people = read(request.train, request.told), request.annotators
    if people and not request.label:
        request = replace(request, label=free("majority_label", file.frame))
        file = with_majority(file, people, request.label)
    if request.label in (*request.ignore, *request.text, *request.category):
        raise UserError(f"{quoted(request.label)} is the column with the labels: it must stay so")
    left_out = tuple(name for name in (*request.ignore, *people) if name != request.label)
    numbers = not people and _are_numbers(apart(file, request.label)[1], file, request)
    known = with_trusted(file, request.label, request.trusted, left_out, numbers)
    values = numbers_of(known.labels, file.decimal) if numbers else None
    votes = None
    if values is None:
        said = votes_of(file, people) if people else pd.DataFrame()
        # Rows of another table, after those of the file, have no votes.
        said = said.reset_index(drop=True).reindex(range(len(known.labels)))
        alike, notes = spelled_alike(pd.concat([known.labels, *(said[name] for name in said)]))
        if people:
            notes += copies(said)
            votes = alike.to_numpy(object)[len(known.labels) :].reshape(len(people), -1).T
        known = known._replace(labels=alike.iloc[: len(known.labels)])
        _check_labels(known.labels.dropna(), request)
    else:
        known = known._replace(labels=known.labels.where(values.notna(), np.nan))
        notes = [_AS_NUMBERS] if request.task == "auto" else []
    # Of the user's rows alone: trusted copies of some would hide an id.
    own = known.frame.iloc[: len(file.frame)]
    columns = recognise(own, request.text, request.category, left_out)
    if all(column.kind is Kind.IGNORED for column in columns):
        told = f":\n{explained(columns)}" if columns else ""
        raise UserError(f"{request.train} has no column to learn from besides the labels{told}")
    labels = known.labels.astype(object).where(known.labels.notna(), None).to_numpy(object)
    have = np.asarray(known.labels.notna())
    warnings = [
        *known.notes,
        *notes,
        *_about_labels(known.labels, file.written[request.label], numbers),
        *_about_trusted(known, numbers),
        *(
            f"column {quoted(column.name)} is left out ({column.note}); with --text or --category "
            "it is used"
            for column in [c for c in columns if c.note.endswith("an id")][:10]
        ),
        *([] if numbers else leaks(known.frame[have], columns, labels[have])),
    ]
    as_numbers = None if values is None else values.to_numpy(float)
    facts = known.trusted, known.fair, known.audit, known.corrected
    return Prepared(
        request, file, known.frame, labels, *facts, votes, as_numbers, columns, warnings
    )


def format_of(request: Request) -> str:
    """The ending of the table's name that was asked for; empty if it is that of the input."""
    wanted = (request.output_format or "").strip(".").lower()
    return f".{wanted}" if wanted else ""


def _are_numbers(labels: pd.Series, file: File, request: Request) -> bool:
    """Whether the labels are meant as numbers: fractions, or more than classes would be."""
    if request.task not in TASKS:
        raise UserError(f"--task {quoted(request.task)} is unknown: choose from {', '.join(TASKS)}")
    if request.task == "classification":
        return False
    values = numbers_of(labels, file.decimal)
    known, given = values.dropna(), int(labels.notna().sum())
    if request.task == "regression":
        if len(known) < given / 2:
            raise UserError(
                f"column {quoted(request.label)} holds {listed(list(labels.dropna()[:3]))}: most "
                "of its labels are not numbers, which --task regression needs"
            )
        return True
    most = _FEW_VALUES if (known % 1 != 0).any() else max(100, given / 10)
    return len(known) > 0.95 * given and known.nunique() > most


def explained(columns: list[Column]) -> str:
    """A line for each column: its name, what it is taken for, and why.

    >>> size, key = Column("size", Kind.NUMBER, "3 missing"), Column("id", Kind.IGNORED, "an id")
    >>> print(explained([size, key]))
    size  number    3 missing
    id    ignored   an id
    """
    width = max((len(str(column.name)) for column in columns), default=0)
    lines = (f"{column.name!s:{width}}  {column.kind:8}  {column.note}" for column in columns)
    return "\n".join(line.rstrip() for line in lines)


def _check_labels(labels: pd.Series, request: Request) -> None:
    classes = labels.unique()
    if len(classes) < 2:
        raise UserError(
            f"{request.train} has only one class, {quoted(classes[0])}: nothing to tell apart"
        )
    if len(classes) > min(_MOST_CLASSES, max(len(labels) / 3, 2)):
        raise UserError(
            f"column {quoted(request.label)} has {len(classes):,} different labels in "
            f"{len(labels):,} rows "
            f"({listed(list(classes), 3)}): too many to be classes. Is it the right column?"
        )


def _about_labels(labels: pd.Series, written: pd.Series, numbers: bool) -> list[str]:
    told, missing = [], int(labels.isna().sum())
    if missing:
        rows = f"{missing:,} rows have" if missing > 1 else "one row has"
        gaps = written[labels.isna().to_numpy()[: len(written)]].dropna().astype(str).str.strip()
        read = listed(sorted(set(gaps) - {""}), 5) if (gaps != "").any() else ""
        so = f" ({read} is taken for none)" if read else ""
        told.append(f"{rows} no label{so}: not judged, but told what is likely")
    counts = labels.value_counts()
    alike = {"are the same number": equal_numbers, "differ only in case": equal_but_for_case}
    for how, find in ({} if numbers else alike).items():
        if twins := find(list(counts.index)):
            told.append(
                f"the labels {listed(twins, 5)} {how}, but are different classes here: write them "
                "alike if they are one"
            )
    if not numbers and len(alone := sorted(counts.index[counts == 1])):
        told.append(
            f"nothing can be learned about labels that occur once: {listed(alone, 5)}. Are they "
            "labels at all?"
        )
    return told


def _about_trusted(known: Known, numbers: bool) -> list[str]:
    count = int(known.trusted.sum())
    if not count:
        return []
    told = []
    if count < ENOUGH:
        only = f"are only {count} trusted rows" if count > 1 else "is only one trusted row"
        told.append(f"there {only}: with {ENOUGH} or more, the answers are much surer")
    without = sorted(set(known.labels.dropna()) - set(known.labels[known.trusted]))
    if without and not numbers:
        names = ", ".join(quoted(name) for name in without[:5])
        more = f" and {len(without) - 5} more" if len(without) > 5 else ""
        told.append(f"no trusted row has the label {names}{more}: judged less surely")
    return told


def run(prepared: Prepared, progress: Progress, jobs: int | None = None) -> Found:
    """Judge the labels; rows without one are told a likely label by the model."""
    have = np.array([label is not None for label in prepared.labels])
    frame, rest = prepared.frame[have], prepared.frame[~have]
    how: dict[str, Any] = {
        "trusted": prepared.trusted[have],
        "fair": None if prepared.fair is None else prepared.fair[have],
        "audit": prepared.audit,
        "columns": prepared.columns,
        "seed": prepared.request.seed,
        "jobs": jobs,
        "progress": progress,
    }
    found: Found
    if prepared.values is None:
        votes = None if prepared.votes is None else prepared.votes[have]
        found = find_wrong_labels(frame, prepared.labels[have], annotators=votes, **how)
    else:
        found = find_wrong_numbers(frame, prepared.values[have], **how)
    if have.all():
        return found
    if isinstance(found, NumberFindings):
        value, far = found.model.values(rest)
        new = {"likely": value, "low": value - far, "high": value + far}
    else:
        new = {"labels": found.model.probabilities(rest)}
    new |= {name: np.zeros(len(rest)) for name in ("wrong", "flagged", "trusted")}
    whole: dict[str, Any] = {"judged": have}
    whole |= {name: _placed(getattr(found, name), values, have) for name, values in new.items()}
    return replace(found, **whole)


def _placed(judged: Array, rest: Array, have: Array) -> Array:
    """What was found of judged rows and of the rest, in the order of the file."""
    whole = np.empty((len(have), *judged.shape[1:]), judged.dtype)
    whole[have], whole[~have] = judged, rest
    return whole


def table_of(prepared: Prepared, found: Found) -> pd.DataFrame:
    """The user's rows and columns as they were, and four columns more."""
    written = prepared.file.written
    rows = slice(0, len(written))
    if isinstance(found, NumberFindings):
        names = {"likely_value": "likely", "likely_low": "low", "likely_high": "high"}
        likely = {name: getattr(found, of)[rows] for name, of in names.items()}
    else:
        likely = {"likely_label": found.likely[rows]}
        likely["likely_probability"] = found.labels[rows].max(1)
    new = {
        **likely,
        "suspicion": np.where(found.doubtful | found.trusted, found.wrong, np.nan)[rows],
        "flagged": found.flagged[rows].copy(),
    }
    if prepared.corrected is not None:  # checked, and wrong
        new["suspicion"][prepared.corrected], new["flagged"][prepared.corrected] = 1, True
    return written.assign(**{free(name, written): rounded(part) for name, part in new.items()})


def write_all(prepared: Prepared, found: Found, command: str) -> tuple[str, str]:
    """Everything that is promised, all or none of it; returns the table's name, and if it had to
    be another than the usual one, why.
    """
    request, table = prepared.request, table_of(prepared, found)
    kind = format_of(request) or prepared.file.kind
    name, problem = f"labels{FORMATS.get(kind, kind)}", ""
    with filled(request.output) as draft:
        try:
            write(table, draft / name, prepared.file, (request.label,))
        except UserError as error:  # the work is done: rather another kind than nothing
            (draft / name).unlink(missing_ok=True)
            name, problem = "labels.csv", f"{error}; it is in labels.csv instead"
            write(table, draft / name, prepared.file)
        save(found.model, draft / "model.npz")
        write_report(draft / "report.html", prepared, found, command)
        write_review(draft / "review.html", prepared, found)
    return name, problem


def write_predictions(
    model: Path, table: Path, output: Path, force: bool, told: Told | None = None
) -> int:
    """The table with what is predicted as new columns; returns the number of rows."""
    if not output.name.endswith(WRITTEN):
        raise UserError(f"{output} should end in one of {', '.join(WRITTEN)}")
    check_file(output)
    if output.exists() and any(output.samefile(given) for given in (model, table)):
        raise UserError(f"{output} is what is read: choose another name for the output")
    if output.exists() and not force:
        raise UserError(f"{output} exists: choose another name, or use --force")
    learned, file = load(model), read(table, told)
    new = predict(learned, file.frame, str(table))
    columns = {free(name, file.written): rounded(values) for name, values in new.items()}
    with replacing(output) as part:
        write(file.written.assign(**columns), part, file)
    return len(file.written)
