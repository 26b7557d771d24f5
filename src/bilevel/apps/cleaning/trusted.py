"""Which rows are trusted: of a second file, marked by a column, or decided in a review."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from bilevel.apps.cleaning.columns import Array
from bilevel.apps.cleaning.counting import LEAST
from bilevel.apps.cleaning.files import read
from bilevel.apps.cleaning.given import File, Told
from bilevel.apps.cleaning.sniffing import ERRORS, read_numbers
from bilevel.errors import UserError, listed, quoted

_YES = {"true", "1", "yes", "y", "t", "x"}
_NO = {"false", "0", "no", "n", "f", ""}
DECISION, PICKED = "decision", "picked"  # columns that only the file of a review has
AT_RANDOM = "at random"
_RARE = 0.2  # of the commonest spelling: then another is meant as the same label
_GAPS = {
    "",
    "null",
    "nan",
    "n/a",
    "#n/a",
    "n.a.",
    "<na>",
    *map(str.casefold, ERRORS),
}  # that stand for no label
_PERHAPS = {"na", "none", "-", "?"}  # where they are rare


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


def apart(file: File, label: str) -> tuple[pd.DataFrame, pd.Series]:
    """The features, and the labels as text."""
    labels = _without_gaps(as_text(column_of(file, label)))
    if labels.isna().all():
        raise UserError(f"{file.path} has no label in any row of column {quoted(label)}")
    return file.frame.drop(columns=label), labels


def _without_gaps(labels: pd.Series) -> pd.Series:
    """The labels, missing where the text says that there is none.

    >>> labels = pd.Series(["yes", "NULL", *["none"] * 9, *["no"] * 9, "-"])
    >>> _without_gaps(labels).dropna().unique().tolist()
    ['yes', 'none', 'no']
    """
    words = labels.str.strip().str.casefold()
    counts = words.value_counts()
    rare = {word for word in _PERHAPS if counts.get(word, 0) < _RARE * counts.max()}
    return labels.where(labels.notna() & ~words.isin(_GAPS | rare), np.nan)


def column_of(file: File, name: str) -> pd.Series:
    """A column that the user named.

    Raises:
        UserError: there is none of that name.
    """
    if name not in file.frame.columns:
        place = f" ({file.place})" if file.place else ""
        alone = file.style and len(file.frame.columns) == 1
        do = "; say what separates the columns by --separator" if alone else ""
        raise UserError(
            f"{file.path}{place} has no column {quoted(name)}; it has "
            f"{listed(file.frame.columns)}{do}"
        )
    if name in file.twice:
        raise UserError(
            f"{file.path} has several columns {quoted(name)}: rename all but the one that is meant"
        )
    return file.written[name]


def spelled_alike(labels: pd.Series) -> tuple[pd.Series, list[str]]:
    """Labels that differ in stray blanks, or rarely in case, as one; and what was done.

    >>> alike, notes = spelled_alike(pd.Series(["yes"] * 9 + ["Yes ", "no", "NO", None]))
    >>> alike.dropna().unique().tolist(), notes
    (['yes', 'no', 'NO'], ["labels that differ only in blanks or case are one: 'Yes ' is 'yes'"])
    """
    counts = labels.value_counts()
    chosen: dict[str, str] = {}
    by_key: dict[str, str] = {}
    for name in counts.index:  # the commonest first
        common = by_key.setdefault(" ".join(name.split()).casefold(), name)
        blanks = " ".join(name.split()) == " ".join(common.split())
        chosen[name] = common if blanks or counts[name] < _RARE * counts[common] else name
    changed = [f"{quoted(name)} is {quoted(new)}" for name, new in chosen.items() if name != new]
    if not changed:
        return labels, []
    more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
    note = "labels that differ only in blanks or case are one: "
    return labels.map(chosen), [note + ", ".join(changed[:5]) + more]


def as_text(values: pd.Series) -> pd.Series:
    """Values as text, with the numbers 3.0 and 3 the same; text and gaps stay what they are.

    >>> as_text(pd.Series([3.0, None, 0.5])).tolist(), as_text(pd.Series(["007", "3.0"])).tolist()
    (['3', nan, '0.5'], ['007', '3.0'])
    """
    if values.map(type).eq(str).all():
        return values.astype(object)
    words = values.astype(str).str.replace(r"^(-?\d+)\.0+$", r"\1", regex=True)
    return words.astype(object).where(values.notna(), np.nan)


def numbers_of(labels: pd.Series, decimal: str) -> pd.Series:
    """The labels as numbers, as the file writes them; missing where one is none.

    >>> numbers_of(pd.Series(["1.234,5", "7,25", "€ 3"]), ",").tolist()
    [1234.5, 7.25, 3.0]
    """
    plain = pd.to_numeric(labels, errors="coerce")
    if decimal != "," and plain.notna().sum() == labels.notna().sum():
        return plain
    one = pd.DataFrame({"label": labels})
    return pd.to_numeric(read_numbers(one, one.fillna(""), decimal)[0].label, errors="coerce")


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
    """Whoever writes numbers with a gap among them writes 3 as 3.0."""
    whole = name.removesuffix(".0")
    return next((form for form in (whole, f"{name}.0") if form in classes), name)


def with_majority(file: File, names: tuple[str, ...], label: str) -> File:
    """The table with the commonest vote of each row as one more column, the first of equals."""
    votes = votes_of(file, names).astype(object)
    votes = votes.where(votes.notna(), None)

    def commonest(row: pd.Series) -> str | None:
        known = [vote for vote in row if vote is not None]
        return max(known, key=known.count) if known else None

    most = votes.apply(commonest, axis=1)
    frame, written = (part.assign(**{label: most}) for part in (file.frame, file.written))
    return replace(file, frame=frame, written=written.assign(**{label: most.fillna("")}))


def votes_of(file: File, names: tuple[str, ...]) -> pd.DataFrame:
    """What each annotator said of each row, as text; missing where that is nothing."""
    return pd.concat([_without_gaps(as_text(column_of(file, name))) for name in names], axis=1)
