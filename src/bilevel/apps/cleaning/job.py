"""The whole job: read, encode, clean, write. Nothing is written before all has succeeded."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
import pandas as pd

from bilevel.algorithms import named
from bilevel.apps.cells import guarded
from bilevel.apps.cleaning.engine import Cleaning, clean
from bilevel.apps.cleaning.features import class_numbers, encode, kinds_of_columns
from bilevel.apps.cleaning.report import write_report
from bilevel.apps.cleaning.request import Prepared, Request
from bilevel.apps.cleaning.tables import LabelledTable
from bilevel.apps.cleaning.trusted import marked_rows, two_files
from bilevel.apps.holdout import Array, RunOptions
from bilevel.durable.folders import check_folder, filled
from bilevel.errors import UserError, quoted
from bilevel.models.softmax.problem import add_bias

_LARGEST_RIDGE = 1e6  # features are scaled: long before, all weights are zero
_FEW = 5  # trusted rows of a class
_LABELS = ("label", "likely_label")  # columns with text from the user's file


def prepare(request: Request) -> Prepared:
    """Read and check all input, before any work."""
    named(request.algorithm)
    if not 0 < request.ridge <= _LARGEST_RIDGE:
        raise UserError(
            f"--ridge must be a positive number, at most {_LARGEST_RIDGE:g}, got {request.ridge}"
        )
    check_folder(request.output, request.force)
    train, trusted = _tables(request)
    columns = kinds_of_columns(train, trusted, list(request.categorical))
    labels, trusted_labels, classes = class_numbers(train, trusted)
    features = encode(columns, train, trusted)
    warnings = _warnings(trusted_labels, classes)
    return Prepared(request, train, features, labels, trusted_labels, classes, warnings)


def run(prepared: Prepared, **options: Unpack[RunOptions]) -> Cleaning:
    """Clean; the options are those of `bilevel.minimize`."""
    request = prepared.request
    return clean(
        add_bias(prepared.features.train),
        prepared.labels,
        add_bias(prepared.features.trusted),
        prepared.trusted_labels,
        classes=len(prepared.classes),
        ridge=request.ridge,
        algorithm=request.algorithm,
        steps=request.steps,
        seed=request.seed,
        **options,
    )


def table_of(prepared: Prepared, found: Cleaning) -> pd.DataFrame:
    """A row for each row that was cleaned, in the file's order and with its number there."""
    classes = np.asarray(prepared.classes, dtype=object)
    return pd.DataFrame(
        {
            "row": prepared.train.features.index,
            "label": classes[prepared.labels],
            "likely_label": classes[found.likely_label],
            "suspicion": 1 - found.label_quality,
            "weight": found.weights,
            "flagged": found.flagged,
        }
    )


def model_of(prepared: Prepared, found: Cleaning) -> dict[str, Any]:
    """The linear model in the units of the input: scores = rows @ coefficients + intercept."""
    features, W = prepared.features, found.coefficients.astype(float)
    # The scaling goes into the model, so that whoever uses it need not repeat it.
    coefficients = W[:-1] / features.scale[:, None]
    return {
        "features": np.asarray(features.names),
        "fill": features.fill,
        "coefficients": coefficients,
        "intercept": W[-1] - features.centre @ coefficients,
        "classes": np.asarray(prepared.classes),
    }


def write(prepared: Prepared, found: Cleaning, command: str) -> None:
    """labels.csv, model.npz and report.html, all or none of them."""
    table = table_of(prepared, found)
    with filled(prepared.request.output) as draft:
        shown = table.assign(**{name: table[name].map(guarded) for name in _LABELS})
        shown.to_csv(draft / "labels.csv", index=False, float_format="%.6g")
        np.savez(draft / "model.npz", **model_of(prepared, found))
        write_report(draft / "report.html", prepared, found, table, command)


def _tables(request: Request) -> tuple[LabelledTable, LabelledTable]:
    column, fraction, drop = request.trusted_column, request.trusted_fraction, list(request.drop)
    if request.trusted is not None and column is not None:
        raise UserError("give the trusted rows with --trusted or with --trusted-column, not both")
    if request.trusted is not None:
        if fraction != 1:
            raise UserError(
                f"--trusted-fraction {fraction:g} applies to the rows that --trusted-column marks: "
                "with --trusted, leave rows out of the file instead"
            )
        return two_files(request.train, request.trusted, request.label, drop)
    if column is None:
        raise UserError("no trusted rows: give a file with --trusted, or --trusted-column")
    return marked_rows(request.train, request.label, drop, column, fraction, request.seed)


def _warnings(trusted_labels: Array, classes: list[str]) -> list[str]:
    counts = np.bincount(trusted_labels, minlength=len(classes))
    few = [f"{quoted(name)} has {n}" for name, n in zip(classes, counts, strict=True) if n < _FEW]
    if not few:
        return []
    return [
        f"some classes have fewer than {_FEW} trusted rows ({', '.join(few[:10])}"
        f"{', ...' if len(few) > 10 else ''}): do not rely on the result before you have added "
        "more. About fifty a class are plenty."
    ]
