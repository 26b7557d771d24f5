"""What each column of a table holds: numbers, dates, categories, free text, or nothing of use."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pandas as pd
from sklearn.tree import DecisionTreeClassifier

from bilevel.errors import UserError, listed, quoted

Array = np.ndarray[Any, Any]

_MOSTLY = 0.8  # a column of which more can be read as numbers (or dates) is meant so
_LOOKED_AT = 2000  # values of a column that decide whether it is text or dates
_LARGEST = 1e37  # what is larger counts as missing: in single precision it would overflow
_DATE = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([ T].*)?")
_NAMED_DATE = r"(\d{1,2})\.?\s+([^\W\d_]{3})[^\W\d_]*\.?,?\s+(\d{4})(.*)"
_MONTHS = {"mrz": 3, "mär": 3, "mai": 5, "okt": 10, "dez": 12, "jän": 1} | {
    name: j + 1 for j, name in enumerate(re.findall("...", "janfebmaraprmayjunjulaugsepoctnovdec"))
}
_KEY = re.compile(r"((?i:^|[\W_])(?i:id|uuid|guid|key|index|no|nr|number)|[a-z](Id|ID|Key|No|Nr))$")


class Kind(StrEnum):
    """What a column is taken for."""

    NUMBER = "number"
    DATE = "date"
    CATEGORY = "category"
    TEXT = "text"
    IGNORED = "ignored"


@dataclass(frozen=True)
class Column:
    """A column, what it is taken for, and why.

    >>> [column] = recognise(pd.DataFrame({"size": [1.5, 2.5, None]}))
    >>> str(column.kind), column.note
    ('number', '1 missing')
    """

    name: Any
    kind: Kind
    note: str = ""


def recognise(
    frame: pd.DataFrame,
    text: Collection[Any] = (),
    category: Collection[Any] = (),
    ignore: Collection[Any] = (),
) -> list[Column]:
    """Decide what each column holds; the user's word goes before what is found.

    Raises:
        UserError: a name that the table lacks.
    """
    told = dict.fromkeys(text, Kind.TEXT) | dict.fromkeys(category, Kind.CATEGORY)
    told |= dict.fromkeys(ignore, Kind.IGNORED)
    if unknown := [name for name in told if name not in set(frame.columns)]:
        raise UserError(
            f"there is no column {quoted(unknown[0])}: there are {listed(frame.columns)}"
        )
    found = {column.name: column for column in _numbers(frame)}
    return [
        Column(name, told[name], "as you said")
        if name in told
        else found.get(name) or _other(name, frame[name])
        for name in frame.columns
    ]


def _numbers(frame: pd.DataFrame) -> list[Column]:
    """Columns of numbers, looked at all at once: one by one is slow for a wide table."""
    numbers = frame.select_dtypes(["number", "bool"])
    values = finite(numbers.to_numpy(float, na_value=np.nan))
    gaps = np.isnan(values).sum(0)
    low, high = (part(values, axis=0, initial=start) for part, start in _ENDS)
    ordered = np.sort(values, axis=0)
    counter = (
        (gaps == 0) & (np.diff(ordered, axis=0) > 0).all(0) & (values == np.round(values)).all(0)
    )
    return [
        _number(name, len(values), *facts)
        for name, *facts in zip(numbers.columns, gaps, high - low, counter, strict=True)
    ]


_ENDS = ((np.nanmin, np.inf), (np.nanmax, -np.inf))


def _number(name: Any, rows: int, gaps: int, span: float, counter: bool) -> Column:
    if gaps == rows:
        return Column(name, Kind.IGNORED, "empty")
    if span == 0 and gaps == 0:
        return Column(name, Kind.IGNORED, "the same in every row")
    if counter and rows > 2 and (span == rows - 1 or _KEY.search(str(name))):
        return Column(name, Kind.IGNORED, "numbers the rows: an id")
    return Column(name, Kind.NUMBER, f"{gaps:,} missing" if gaps else "")


def _other(name: Any, values: pd.Series) -> Column:
    """A column that pandas did not read as numbers."""
    known = values.dropna()
    if pd.api.types.is_datetime64_any_dtype(values):
        return Column(name, Kind.DATE) if known.nunique() > 1 else _idle(name, known)
    words = known.astype(str)
    levels = words.nunique()
    if levels < 2 and len(known) in (0, len(values)):
        return _idle(name, known)
    numeric = pd.to_numeric(words, errors="coerce").notna()
    if numeric.mean() > _MOSTLY and levels > 2:
        return Column(name, Kind.NUMBER, f"{int((~numeric).sum()):,} cells not numbers: missing")
    if _dates(words).notna().mean() > _MOSTLY:
        return Column(name, Kind.DATE)
    if levels <= len(values) / 2:
        return Column(name, Kind.CATEGORY, f"{levels:,} values")
    if _is_text(words):
        return Column(name, Kind.TEXT)
    return Column(name, Kind.IGNORED, "nearly every value differs: an id")


def _idle(name: Any, known: pd.Series) -> Column:
    return Column(name, Kind.IGNORED, "the same in every row" if len(known) else "empty")


def _is_text(words: pd.Series) -> bool:
    """Several words, or at least words that come again in other rows."""
    some = words.iloc[:_LOOKED_AT].str.lower().str.split()
    count = some.str.len().mean()
    distinct = len({word for row in some for word in row})
    return bool(count >= 4 or (count >= 1.5 and distinct < 0.5 * count * len(some)))


def _dates(words: pd.Series) -> pd.Series:
    some = _numbered(words.iloc[:_LOOKED_AT])
    if not some.str.fullmatch(_DATE).mean() > _MOSTLY:
        return pd.Series([pd.NaT])
    return dates_of(some)


def day_comes_first(values: pd.Series) -> bool:
    """Whether 3/4 is in April; where it cannot be told, 3.4. is in April and 3/4 in March."""
    words = _numbered(values.dropna().astype(str))
    first = pd.to_numeric(words.str.extract(r"^(\d{1,2})[-/.]")[0], errors="coerce")
    return bool((first > 12).any() or words.str.contains(r"^\d{1,2}\.").mean() > _MOSTLY)


def dates_of(values: pd.Series, day_first: bool | None = None) -> pd.Series:
    """Points in time, with the day first or not as these values show, unless it is known."""
    if pd.api.types.is_datetime64_any_dtype(values):
        return values
    words = _numbered(values.astype(str))
    if day_first is None:
        day_first = day_comes_first(values)
    how: dict[str, Any] = {"errors": "coerce", "dayfirst": day_first, "utc": True}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the first has no form that others could have
        when = pd.to_datetime(words, **how)
    rest = when.isna()  # of other forms than the first: slowly
    when.loc[rest] = pd.to_datetime(words[rest], format="mixed", **how).array
    return when


def _numbered(words: pd.Series) -> pd.Series:
    """Dates with the month as a number.

    >>> _numbered(pd.Series(["5. März 2023", "17 May 2024 10:30", "2024-05-17"])).tolist()
    ['5.3.2023', '17.5.2024 10:30', '2024-05-17']
    """

    def point(match: re.Match[str]) -> str:
        day, month, year, rest = match.groups()
        return (
            f"{day}.{number}.{year}{rest}" if (number := _MONTHS.get(month.lower())) else match[0]
        )

    return words.str.replace(_NAMED_DATE, point, regex=True)


def finite(values: Array) -> Array:
    """The numbers, with infinite and huge ones missing."""
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(values) < _LARGEST, values, np.nan)


_SURE = 0.99  # of the labels are determined by the column alone
_COMMON = 0.95  # where one class has more of the rows, nothing can be told
_MOST = 500  # columns that are looked at
_ROWS_A_LEAF = 10  # at least: fewer may be told apart by chance


def leaks(frame: pd.DataFrame, columns: list[Column], labels: Array) -> list[str]:
    """A warning for each column that determines the label alone."""
    some = np.random.default_rng(0).permutation(len(labels))[:_LOOKED_AT]
    part, codes = frame.iloc[some], np.unique(labels[some], return_inverse=True)[1]
    if np.bincount(codes).max() > _COMMON * len(codes):
        return []
    looked_at = [c for c in columns if c.kind in (Kind.NUMBER, Kind.CATEGORY)][:_MOST]
    return [
        f"column {quoted(column.name)} alone determines nearly every label: if it was made from "
        "the label, no wrong label can be found. Leave it out with --ignore."
        for column in looked_at
        if _determines(part[column.name], codes)
    ]


def _determines(values: pd.Series, codes: Array) -> bool:
    numeric = pd.api.types.is_numeric_dtype(values.dtype)
    numbers = values.to_numpy(float, na_value=np.nan) if numeric else pd.factorize(values)[0]
    X = np.nan_to_num(numbers, nan=-1.0).clip(-1e30, 1e30)[:, None]
    leaves = 2 * (int(codes.max()) + 1)
    tree = DecisionTreeClassifier(max_leaf_nodes=max(leaves, 2), random_state=0)
    return len(codes) >= _ROWS_A_LEAF * leaves and bool(tree.fit(X, codes).score(X, codes) > _SURE)
