"""The labels in a file: as text, as numbers, and by several people."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import numpy as np
import pandas as pd

from bilevel.apps.cleaning.given import File
from bilevel.apps.cleaning.sniffing import ERRORS, read_numbers
from bilevel.errors import UserError, listed, quoted

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
        if any(re.fullmatch(r"column \d+", column) for column in file.frame.columns):
            do = "; if the names stand in a later line, delete the lines above it"
        if sum(column.replace(".", "", 1).isdigit() for column in file.frame.columns) > 1:
            do = "; if these are a row, write a line with the names of the columns above it"
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
    """The labels as numbers, as the file writes them; missing where one is none, or infinite.

    >>> numbers_of(pd.Series(["1.234,5", "7,25", "€ 3"]), ",").tolist()
    [1234.5, 7.25, 3.0]
    """
    plain = pd.to_numeric(labels, errors="coerce")
    if decimal == "," or plain.notna().sum() < labels.notna().sum():
        one = pd.DataFrame({"label": labels})
        plain = pd.to_numeric(read_numbers(one, one.fillna(""), decimal)[0].label, errors="coerce")
    return plain.where(np.isfinite(plain))


def equal_numbers(names: list[str]) -> list[str]:
    """Names that differ, though they are one number.

    >>> equal_numbers(["2", "1.0", "a", "1"])
    ['1', '1.0']
    """
    values = pd.to_numeric(pd.Series(names, index=names), errors="coerce").dropna()
    return sorted(values.index[values.duplicated(keep=False)])


def equal_but_for_case(names: list[str]) -> list[str]:
    """Names that differ only in case, though each is too common for a slip.

    >>> equal_but_for_case(["Yes", "no", "yes"])
    ['Yes', 'yes']
    """
    forms = pd.Series([name.casefold() for name in names], index=names, dtype=object)
    return sorted(forms.index[forms.duplicated(keep=False)])


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
    votes = pd.concat([_without_gaps(as_text(column_of(file, name))) for name in names], axis=1)
    if idle := [name for name in names if votes[name].isna().all()]:
        raise UserError(
            f"{file.path} has no label in any row of column {quoted(idle[0])}: leave it out of "
            "--annotators"
        )
    return votes


_TELLING = 30  # rows that two people labelled, and always alike


def copies(votes: pd.DataFrame) -> list[str]:
    """A warning for each two annotators who never differ, though some labels do.

    >>> ada = pd.Series([*"xy"] * 20)
    >>> copies(pd.DataFrame({"ada": ada, "bob": ada, "cy": ["x"] * 40}))[0][:60]
    "'ada' and 'bob' gave the same label in all 40 rows that both"
    """
    told = []
    for one, other in itertools.combinations(votes.columns, 2):
        both = votes[[one, other]].dropna()
        alike = len(both) >= _TELLING and (both[one] == both[other]).all()
        if alike and (votes.loc[both.index].nunique(axis=1) > 1).any():
            told.append(
                f"{quoted(one)} and {quoted(other)} gave the same label in all {len(both):,} rows "
                "that both labelled: if one copied the other, name only one of them"
            )
    return told
