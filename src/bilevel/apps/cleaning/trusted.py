"""Which rows are trusted: those of a second file, or those that a column marks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from bilevel.apps.cleaning.tables import LabelledTable, as_text, read_table
from bilevel.apps.holdout import Array
from bilevel.errors import UserError, listed, quoted

_YES = {"true", "1", "yes", "y", "t"}
_NO = {"false", "0", "no", "n", "f", ""}


def two_files(
    train: Path, trusted: Path, label: str, drop: list[str]
) -> tuple[LabelledTable, LabelledTable]:
    """The rows to clean and the trusted rows, from a file each."""
    first, second = _without(drop, read_table(train, label), read_table(trusted, label))
    return first, second


def marked_rows(
    train: Path, label: str, drop: list[str], column: str, fraction: float, seed: int
) -> tuple[LabelledTable, LabelledTable]:
    """The rows to clean and the trusted rows, from one file with a column that marks them.

    A fraction of less than 1 is drawn at random from each class; the other marked rows are
    cleaned like the rest.
    """
    (whole,) = _without(drop, read_table(train, label))
    if column not in whole.features.columns:
        raise UserError(
            f"{train} has no column {quoted(column)} to mark trusted rows, besides the labels and "
            "what is dropped"
        )
    marked = _marked(column, whole.features[column])
    kept = _fraction(whole.labels[marked], fraction, seed)
    if not len(kept):
        raise UserError(
            f"no trusted rows: column {quoted(column)} marks {int(marked.sum())} rows, of which "
            f"--trusted-fraction {fraction:g} takes none"
        )
    mask = whole.features.index.isin(kept)
    if mask.all():
        raise UserError(f"column {quoted(column)} marks all rows: none are left to clean")
    rest = replace(whole, features=whole.features.drop(columns=column))
    return (
        rest.take(~mask, f"the doubtful rows of {train}"),
        rest.take(mask, f"the trusted rows of {train}"),
    )


def _without(drop: list[str], *tables: LabelledTable) -> list[LabelledTable]:
    """The tables without some columns, each of which must be in at least one of them."""
    for name in drop:
        if not any(name in table.features.columns for table in tables):
            raise UserError(
                f"{' and '.join(table.source for table in tables)} have no column {quoted(name)} "
                "to drop"
            )
    return [
        replace(table, features=table.features.drop(columns=drop, errors="ignore"))
        for table in tables
    ]


def _marked(name: str, marks: pd.Series) -> Array:
    """True, 1, yes and the like; a missing mark counts as no."""
    words = as_text(marks).fillna("no").str.strip().str.lower()
    if strange := set(words) - _YES - _NO:
        raise UserError(
            f"column {quoted(name)} should mark trusted rows by true or false, but holds "
            f"{listed(sorted(strange), 5)}"
        )
    return np.asarray(words.isin(_YES))


def _fraction(labels: pd.Series, fraction: float, seed: int) -> pd.Index:
    """A random fraction of each class, rounded up."""
    # By class, since a rare class could be left out of a fraction of all rows.
    shuffled = labels.sample(frac=1, random_state=np.random.default_rng(seed))
    classes = shuffled.groupby(shuffled)
    place, size = classes.cumcount(), classes.transform("size")
    return shuffled.index[place < fraction * size]
