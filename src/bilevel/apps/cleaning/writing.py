"""Tables written back, into files of the kinds that people have."""

from __future__ import annotations

import datetime
import sqlite3
from collections.abc import Callable, Collection
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bilevel.apps.cells import guarded
from bilevel.apps.cleaning.columns import Array
from bilevel.apps.cleaning.given import File
from bilevel.apps.cleaning.sniffing import Style
from bilevel.errors import UserError, short

FORMATS = {".txt": ".csv", ".zip": ".csv", ".gz": ".csv.gz", ".ndjson": ".jsonl", ".json": ".jsonl"}
FORMATS |= {".sqlite": ".db", ".sqlite3": ".db", ".xlsm": ".xlsx"}
WRITTEN = (".csv", ".tsv", ".csv.gz", ".xlsx", ".parquet", ".feather", ".jsonl", ".db")
_TEXTS = (".csv", ".tsv", ".gz")
_TYPES: dict[str, tuple[type, ...]] = {  # of the cells that other kinds can hold
    ".xlsx": (str, int, float, Decimal, datetime.date, datetime.time),
    ".jsonl": (str, int, float, list, dict),
    ".db": (str, int, float, bytes),
}
_CONTROL = r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]"  # which no workbook may hold
_LONGEST = 32_767  # characters of a cell of a workbook
_NO_NUMBER = r"\s*[-+]?0\d|.*[^\W\d_]\s*$|\s*[^\W\d_]"  # 007, 3 kg, EUR 5
_WIDEST, _LOOKED_AT = 60, 200
_EXACT = 15  # digits of a number that a spreadsheet keeps


def rounded(values: Array) -> Array:
    """Six digits of a number, which is more than anybody knows.

    >>> rounded(np.array([0.12345678, 1234567.8])).tolist()
    [0.123457, 1234570.0]
    """
    return np.array([float(f"{v:.6g}") for v in values]) if values.dtype.kind == "f" else values


def free(name: str, table: pd.DataFrame) -> str:
    """The name, or with underscores if the user's table has such a column already."""
    taken = {str(column).casefold() for column in table.columns}  # databases do not tell case
    while name in taken:
        name += "_"
    return name


def write(frame: pd.DataFrame, path: Path, like: File, words: Collection[str] = ()) -> None:
    """The table in the kind of file that the path ends in, in the style of another file.

    Cells that a spreadsheet would run become text, and so does what the kind cannot hold.

    Args:
        words: columns that are text, even if they look like numbers.

    Raises:
        UserError: this kind of file cannot hold the table.
    """
    kind, style = path.suffix, like.style or Style("utf-8", ",", ".")
    text: dict[str, Any] = {"index": False, "encoding": style.encoding, "errors": "replace"}
    text |= {"sep": style.separator, "decimal": style.decimal or "."}
    writers: dict[str, Callable[[pd.DataFrame], Any]] = {
        ".csv": lambda table: table.to_csv(path, **text),
        ".tsv": lambda table: table.to_csv(path, **(text | {"sep": "\t"})),
        ".gz": lambda table: table.to_csv(path, compression={"method": "gzip", "mtime": 1}, **text),
        ".xlsx": lambda table: _to_workbook(table, path),
        ".parquet": lambda table: table.to_parquet(path, index=False),
        ".feather": lambda table: table.reset_index(drop=True).to_feather(path),
        ".jsonl": lambda table: table.to_json(
            path, orient="records", lines=True, force_ascii=False, date_format="iso"
        ),
        ".db": lambda table: _to_database(table, path),
    }
    if like.style and kind not in _TEXTS:
        frame = _with_numbers(frame, like, words)
    try:
        frame = _safe(frame)
        writers[kind](frame if kind in _TEXTS else _held(frame, kind))
    except (UserError, OSError, MemoryError):
        raise
    except Exception as error:  # what the writers raise is theirs to choose
        reason = short(" ".join(str(error).split()), 200)
        raise UserError(f"the table cannot be written as {kind[1:]}: {reason}") from error


def _with_numbers(frame: pd.DataFrame, like: File, words: Collection[str]) -> pd.DataFrame:
    """Cells of a text file as the numbers that they are: not those of a code, or with a unit."""
    numbers = {}
    for name in set(like.frame.columns) & set(frame.columns) - set(words):
        values, cells = like.frame[name], like.written[name]
        if values.dtype.kind in "iuf":
            gaps = values.isna() & (cells != "")
            code = cells.str.match(_NO_NUMBER) | (cells.str.count(r"\d") > _EXACT)
            if not (gaps | code).any():
                numbers[name] = values
    return frame.assign(**numbers)


def _safe(table: pd.DataFrame) -> pd.DataFrame:
    """Cells that a spreadsheet would run, shown as text instead."""

    def cell(value: Any) -> Any:
        return guarded(value) if isinstance(value, str) else value

    texts = [name for name in table.columns if table[name].dtype.kind not in "biufM"]
    safe = {name: table[name].map(cell) for name in texts}
    return table.assign(**safe).set_axis([guarded(str(name)) for name in table.columns], axis=1)


def _held(frame: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Text in place of what the kind of file cannot hold."""
    fit = _cells if kind in _TYPES else _arrow
    return frame.assign(
        **{
            name: fit(frame[name], kind)
            for name in frame.columns
            if not isinstance(frame[name].dtype, np.dtype) or frame[name].dtype.kind in "Om"
        }
    )


def _cells(column: pd.Series, kind: str) -> pd.Series:
    def fitting(value: Any) -> Any:
        value = value.tolist() if isinstance(value, np.generic | np.ndarray) else value
        value = float(value) if isinstance(value, Decimal) and kind != ".xlsx" else value
        zone = getattr(value, "tzinfo", None)
        large = isinstance(value, int) and value.bit_length() > 63
        return value if isinstance(value, _TYPES[kind]) and not (zone or large) else str(value)

    known = column.notna()
    cells = column.astype(object).where(known, None)
    cells[known] = pd.Series([fitting(v) for v in cells[known]], cells.index[known], object)
    return cells


def _arrow(column: pd.Series, _: str) -> pd.Series:
    from pyarrow import Array, ArrowException

    try:
        Array.from_pandas(column)
    except (
        ArrowException,
        TypeError,
        ValueError,
        OverflowError,
    ):  # of several types, or of one that it lacks
        return column.astype(object).map(str).where(column.notna(), None)
    return column


def _to_workbook(frame: pd.DataFrame, path: Path) -> None:
    from openpyxl.utils import get_column_letter

    texts = [name for name in frame.columns if frame[name].dtype.kind not in "biufM"]
    sizes = [frame[name].astype(str).str.len().max() for name in texts]
    if max(sizes, default=0) > _LONGEST:
        raise UserError(f"a cell of a workbook has at most {_LONGEST:,} characters")
    frame = frame.assign(**{n: frame[n].replace(_CONTROL, "\ufffd", regex=True) for n in texts})
    frame = frame.set_axis(frame.columns.str.replace(_CONTROL, "\ufffd", regex=True), axis=1)
    with pd.ExcelWriter(path, engine="openpyxl") as book:
        frame.to_excel(book, index=False, freeze_panes=(1, 0))
        (sheet,) = book.sheets.values()
        for place, name in enumerate(frame.columns):
            long = frame.iloc[:_LOOKED_AT, place].astype(str).str.len().max()
            width = min(max(len(name), long) + 2, _WIDEST)
            sheet.column_dimensions[get_column_letter(place + 1)].width = width


def _to_database(frame: pd.DataFrame, path: Path) -> None:
    with closing(sqlite3.connect(path)) as base:
        frame.to_sql("labels", base, index=False)
