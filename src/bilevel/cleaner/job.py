"""The whole job: read, encode, clean, write. Nothing is written before all has succeeded."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bilevel.algorithms import registry
from bilevel.cleaner.features import class_numbers, encode, kinds_of_columns
from bilevel.cleaner.report import write_report
from bilevel.cleaner.request import Prepared, Request
from bilevel.cleaner.tables import Table, read_table
from bilevel.cleaning import Cleaning, clean
from bilevel.errors import UserError
from bilevel.loop import Callback
from bilevel.softmax import add_bias


def prepare(request: Request) -> Prepared:
    """Read and check all input, before any work."""
    if request.algorithm not in registry():
        raise UserError(
            f"there is no algorithm {request.algorithm!r}; there are {', '.join(registry())}"
        )
    _check_output(request.output, request.force)
    train, trusted = _tables(request)
    columns = kinds_of_columns(train, trusted, list(request.categorical))
    labels, trusted_labels, classes = class_numbers(train, trusted)
    if len(trusted_labels) < 2:
        raise UserError("there is only one trusted row: at least two are needed, better fifty")
    rows, trusted_rows, names = encode(columns, train, trusted)
    return Prepared(
        request,
        train,
        add_bias(rows),
        labels,
        add_bias(trusted_rows),
        trusted_labels,
        classes,
        [*names, "(bias)"],
    )


def run(prepared: Prepared, callbacks: Iterable[Callback] = ()) -> Cleaning:
    """Clean."""
    request = prepared.request
    return clean(
        prepared.rows,
        prepared.labels,
        prepared.trusted_rows,
        prepared.trusted_labels,
        classes=len(prepared.classes),
        ridge=request.ridge,
        algorithm=request.algorithm,
        steps=request.steps,
        seed=request.seed,
        callbacks=callbacks,
    )


def table_of(prepared: Prepared, found: Cleaning) -> pd.DataFrame:
    """A row for each row of the input, in its order."""
    classes = np.asarray(prepared.classes)
    return pd.DataFrame(
        {
            "row": np.arange(1, len(found.weights) + 1),
            "label": classes[prepared.labels],
            "likely_label": classes[found.likely_label],
            "suspicion": 1 - found.label_quality,
            "weight": found.weights,
            "flagged": found.flagged,
        }
    )


def write(prepared: Prepared, found: Cleaning, command: str) -> None:
    """labels.csv, model.npz and report.html, all or none of them."""
    output = prepared.request.output
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{output.name}.", dir=output.parent))
    except OSError as error:
        raise UserError(f"cannot write to {output}: {error}") from error
    try:
        table = table_of(prepared, found)
        table.to_csv(draft / "labels.csv", index=False, float_format="%.6g")
        np.savez(
            draft / "model.npz",
            coefficients=found.coefficients,
            classes=np.asarray(prepared.classes),
            features=np.asarray(prepared.feature_names),
        )
        write_report(draft / "report.html", prepared, found, table, command)
        draft.chmod(0o755)
        if output.exists():
            shutil.rmtree(output)
        os.replace(draft, output)
    except OSError as error:
        raise UserError(f"cannot write to {output}: {error}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _tables(request: Request) -> tuple[Table, Table]:
    drop = list(request.drop)
    if request.trusted is not None:
        return (
            read_table(request.train, request.label, drop),
            read_table(request.trusted, request.label, drop),
        )
    if request.trusted_column is None:
        raise UserError("no trusted rows: give a file with --trusted, or --trusted-column")
    whole = read_table(request.train, request.label, drop)
    if request.trusted_column not in whole.features.columns:
        raise UserError(f"{request.train} has no column {request.trusted_column!r}")
    marks = whole.features[request.trusted_column]
    mask = _marked(request.trusted_column, marks)
    mask &= np.random.default_rng(request.seed).random(len(mask)) < request.trusted_fraction
    if not mask.any():
        raise UserError(f"column {request.trusted_column!r} marks no trusted rows")
    if mask.all():
        raise UserError(f"column {request.trusted_column!r} marks all rows: none are left to clean")
    features = whole.features.drop(columns=request.trusted_column)
    part = replace(whole, features=features)
    return _rows(part, ~mask), _rows(part, mask)


def _rows(table: Table, mask: Any) -> Table:
    features = table.features[mask].reset_index(drop=True)
    return Table(table.source, features, table.labels[mask].reset_index(drop=True))


def _marked(name: str, marks: pd.Series) -> Any:
    """True, 1, yes and the like."""
    words = marks.astype(str).str.strip().str.lower()
    yes, no = (
        {"true", "1", "1.0", "yes", "y", "t"},
        {"false", "0", "0.0", "no", "n", "f", "nan", ""},
    )
    strange = set(words) - yes - no
    if strange:
        raise UserError(
            f"column {name!r} should mark trusted rows by true or false, but holds "
            f"{sorted(strange)[:5]}"
        )
    return words.isin(yes).to_numpy()


def _check_output(output: Path, force: bool) -> None:
    if output.is_file():
        raise UserError(f"the output {output} is a file: name a folder")
    if output.is_dir() and any(output.iterdir()) and not force:
        raise UserError(f"the folder {output} is not empty: choose another, or use --force")
    parent = next(p for p in [output, *output.resolve().parents] if p.exists())
    if not os.access(parent, os.W_OK):
        raise UserError(f"cannot write to {output}: {parent} is not writable")
