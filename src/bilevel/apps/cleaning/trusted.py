"""Which rows are trusted: of a second file, marked by a column, or decided in a review."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from bilevel.apps.cleaning.columns import Array
from bilevel.apps.cleaning.counting import LEAST
from bilevel.apps.cleaning.files import read
from bilevel.apps.cleaning.given import File, Told
from bilevel.apps.cleaning.labels import apart, as_text, numbers_of
from bilevel.errors import UserError, listed, quoted

_YES = {"true", "1", "yes", "y", "t", "x"}
_NO = {"false", "0", "no", "n", "f", ""}
DECISION, PICKED = "decision", "picked"  # columns that only the file of a review has
AT_RANDOM = "at random"


class Known(NamedTuple):
    """All rows: those of the user's table, and after them trusted ones from elsewhere.

    Args:
        frame: their features.
        labels: as text; missing where there is none.
        trusted: which labels are right.
        fair: which of these are a fair sample; None: all of them.
        audit: rows that were picked at random and checked, and how many were wrong.
        corrected: the numbers of rows in the file whose label turned out to be wrong.
        notes: what was made of the labels, for people.
    """

    frame: pd.DataFrame
    labels: pd.Series
    trusted: Array
    fair: Array | None = None
    audit: tuple[int, int] | None = None
    corrected: Array | None = None
    notes: tuple[str, ...] = ()


def with_trusted(
    file: File, label: str, trusted: str | None, ignore: tuple[str, ...], numbers: bool = False
) -> Known:
    """The table's rows, and which labels are known to be right: classes of the table, or numbers.

    Raises:
        UserError: no such column or file, a missing label, labels or columns that do not fit.
    """
    features, labels = apart(file, label)
    none = np.zeros(len(features), bool)
    if trusted is None:
        return Known(features, labels, none)
    if trusted in features.columns and not Path(trusted).is_file():
        return _marked(features, labels, trusted)
    if not Path(trusted).exists():
        raise UserError(
            f"--trusted {quoted(trusted)} is neither a file nor a column of {file.path}"
        )
    other = read(Path(trusted), Told())
    if {"row", DECISION, label} <= set(other.frame.columns):
        return _decided(features, labels, other, label)
    theirs, right = apart(other, label)
    if right.isna().any():
        row = right.index[right.isna()][0]
        raise UserError(f"{other.path} has no label in row {row}: trusted rows need their labels")
    if numbers:
        spelled = dict(zip(numbers_of(labels, file.decimal), labels, strict=True))
        values = numbers_of(right, other.decimal)
        right = values.map(lambda v: spelled.get(v, f"{v:.15g}".replace(".", file.decimal)))
    else:
        right = _classes_of(right, set(labels.dropna()), other.path, file.path)
    return _joined((features, labels), (theirs, right), (file.path, other.path), set(ignore))


def _marked(features: pd.DataFrame, labels: pd.Series, column: str) -> Known:
    """True, 1, yes and the like; a missing mark counts as no."""
    words = as_text(features[column]).fillna("no").astype(str).str.strip().str.lower()
    if strange := set(words) - _YES - _NO:
        raise UserError(
            f"column {quoted(column)} should mark trusted rows by yes or no, but holds "
            f"{listed(sorted(strange), 5)}"
        )
    marked = np.asarray(words.isin(_YES))
    if marked.all():
        raise UserError(f"column {quoted(column)} marks all rows: none are left to judge")
    return Known(features.drop(columns=column), labels, marked)


def _decided(features: pd.DataFrame, labels: pd.Series, other: File, label: str) -> Known:
    """A review's decisions: rows by their number, with the label that was found right."""
    rows, right = pd.to_numeric(other.frame["row"], errors="coerce"), as_text(other.written[label])
    if strange := [n for n in rows if n not in features.index]:
        raise UserError(
            f"{other.path} decides on row {strange[0]:g}: there are rows 1 to {len(features)}"
        )
    if (empty := right.isna() | (right.str.strip() == "")).any():
        raise UserError(f"{other.path} has no label for row {rows[empty].iloc[0]:g}: fill it in")
    picked = other.frame.get(PICKED, pd.Series("", other.frame.index)) == AT_RANDOM
    wrong = other.frame[DECISION] == "wrong"
    places, changed = rows.astype(int).to_numpy(), labels.copy()
    changed[places] = right.to_numpy()
    fair = np.asarray(features.index.isin(rows[picked]))
    note = f"of {len(rows)} rows that you decided on, {int(wrong.sum())} had wrong labels"
    audit = int(picked.sum()), int((picked & wrong).sum())
    trusted, corrected = np.asarray(features.index.isin(rows)), places[wrong] - 1
    return Known(features, changed, trusted, fair, audit, corrected, (note,))


_Part = tuple[pd.DataFrame, pd.Series]


def _joined(doubtful: _Part, checked: _Part, paths: tuple[Path, Path], ignore: set[str]) -> Known:
    (features, labels), (theirs, right), (path, other) = doubtful, checked, paths
    mine, there = set(features) - ignore, set(theirs) - ignore
    if lacking := sorted(mine - there):
        raise UserError(
            f"{other} lacks columns of {path}: {listed(lacking)}; add them, or use --ignore for "
            "those that do not matter"
        )
    numbers = features[sorted(mine)].select_dtypes("number").columns
    given = theirs[numbers].dropna(axis=1, how="all")
    if strange := [c for c in given if pd.to_numeric(given[c], errors="coerce").isna().all()]:
        raise UserError(
            f"{other} has no numbers in columns that are numbers in {path}: {listed(strange)}; "
            "write them alike"
        )
    frame = pd.concat([features, theirs.reindex(columns=features.columns)], ignore_index=True)
    cells = pd.util.hash_pandas_object(frame[sorted(mine)].astype(object).astype(str), index=False)
    if mine and cells[: len(features)].isin(cells[len(features) :]).all():
        raise UserError(f"every row of {path} is among the trusted rows: nothing is left to judge")
    mask = np.r_[np.zeros(len(features), bool), np.ones(len(theirs), bool)]
    joined = Known(frame, pd.concat([labels, right], ignore_index=True), mask)
    return _in_place(joined, cells.to_numpy(), len(features))


def _in_place(known: Known, cells: Array, own: int) -> Known:
    """Trusted rows that are rows of the table are these, where most of them are: with no copy of
    the same row that is still to be judged.
    """
    once = [~pd.Series(part).duplicated(keep=False) for part in (cells[:own], cells[own:])]
    mine, theirs = np.flatnonzero(once[0]), own + np.flatnonzero(once[1])
    place = pd.Series(mine, cells[mine])
    theirs = theirs[np.isin(cells[theirs], place.index)]
    if len(theirs) <= (len(cells) - own) / 2:
        return known
    rows, labels, trusted = place[cells[theirs]].to_numpy(), known.labels.copy(), known.trusted
    given, right = labels[rows].to_numpy(), labels[theirs].to_numpy()
    corrected = rows[pd.notna(given) & (given != right)]
    labels[rows], trusted[rows] = right, True
    kept = np.setdiff1d(np.arange(len(cells)), theirs)
    has = "has" if len(corrected) == 1 else "have"
    note = f"{len(rows)} trusted rows are rows of your table; {len(corrected)} of them {has} "
    note += "another label there"
    if len(rows) >= LEAST:
        note += "; unless other labels contradict it, they are taken for rows picked at random"
    return Known(
        known.frame.iloc[kept].reset_index(drop=True),
        labels.iloc[kept].reset_index(drop=True),
        trusted[kept],
        audit=(len(rows), len(corrected)),
        corrected=corrected,
        notes=(note,),
    )


def _classes_of(right: pd.Series, classes: set[str], other: Path, path: Path) -> pd.Series:
    right = right.map(lambda name: name if name in classes else _respelled(name, classes))
    if unknown := sorted(set(right) - classes):
        raise UserError(
            f"labels of {other} that do not occur in {path}: {listed(unknown)}; "
            f"there are {listed(sorted(classes))}"
        )
    return right


def _respelled(name: str, classes: set[str]) -> str:
    """The only class that differs in blanks, case or a final .0 alone: whoever writes numbers with
    a gap among them writes 3 as 3.0.
    """
    alike = [form for form in classes if _bare(form) == _bare(name)]
    return alike[0] if len(alike) == 1 else name


def _bare(name: str) -> str:
    return " ".join(name.split()).casefold().removesuffix(".0")
