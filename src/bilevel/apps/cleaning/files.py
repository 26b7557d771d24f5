"""Tables in files of the kinds that people have, read and written back."""

from __future__ import annotations

import gzip
import io
import itertools
import sqlite3
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bilevel.apps.cleaning.given import File, Told
from bilevel.apps.cleaning.records import records
from bilevel.apps.cleaning.signs import BASES, BOOKS, check_sign, either
from bilevel.apps.cleaning.sniffing import (
    ERRORS,
    Style,
    first_lines,
    is_spaced,
    lines_above,
    read_numbers,
    uneven,
    without_other_headers,
)
from bilevel.durable.regular import MOST_UNPACKED, check_archive, check_given, check_unpacked
from bilevel.errors import UserError, listed, quoted, short

_MOST_COLUMNS = 50_000
_SCALARS = (str, int, float, bool, Decimal, date, datetime, pd.Timestamp)
_SMALL = 20_000_000  # bytes of a workbook in which merged cells are looked for


def read(path: Path, told: Told | None = None) -> File:
    """A file of any known kind.

    Raises:
        UserError: no such file, an unknown kind, no rows.
    """
    told = told or Told()
    try:
        check_given(path)
        kind = _kind(path)
        check_sign(path, kind)
        if kind in _ARCHIVES and zipfile.is_zipfile(path):
            check_archive(path)
        found = _READERS[kind](path, told)
    except (UserError, MemoryError):
        raise
    except ImportError as error:
        raise UserError(
            f'{path} needs another package: pip install "bilevel[cli]" ({error})'
        ) from error
    except PermissionError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except Exception as error:  # what the readers raise is theirs to choose
        reason = short(" ".join(str(error).split()), 200)
        raise UserError(
            f"{path} cannot be read as {kind[1:]} ({reason}): is it whole? Save it again in the "
            "program that made it"
        ) from error
    return _checked(replace(found, kind=kind))


def _kind(path: Path) -> str:
    name = path.name.lower()
    for kind in sorted(_READERS, key=len, reverse=True):
        if name.endswith(kind):
            return kind
    found = f"ends in {quoted(path.suffix)}" if path.suffix else "has no ending"
    raise UserError(f"{path} {found}: save it as a file that ends in {either(_READERS)}")


def _checked(file: File) -> File:
    frame = file.frame.set_axis(file.frame.columns.astype(str).str.strip(), axis=1)
    unnamed = frame.columns.str.startswith("Unnamed: ")
    used = np.asarray(~unnamed | frame.notna().any())
    names: dict[str, None] = {}
    for j, name in enumerate(frame.columns):
        plain = f"column {j + 1}" if unnamed[j] else name
        numbered = (f"{plain}.{k}" for k in itertools.count(1))
        free = (form for form in numbered if form not in names and form not in frame.columns)
        names[next(free) if plain in names else plain] = None
    frame = frame.set_axis(list(names), axis=1).loc[:, used]
    if frame.empty:
        where = f" in {file.place}" if file.place else ""
        raise UserError(f"{file.path} has a header but no rows{where}")
    last = int(np.flatnonzero(frame.notna().any(axis=1))[-1:].sum()) + 1  # empty rows come after it
    index = pd.RangeIndex(1, last + 1)  # as people count, without the header
    frame, written = frame[:last], file.written.loc[:, used].set_axis(frame.columns, axis=1)[:last]
    frame, written = frame.set_axis(index), written.set_axis(index)
    return replace(file, frame=_of_scalars(frame), written=written)


def _of_scalars(frame: pd.DataFrame) -> pd.DataFrame:
    """With lists, bytes and other things that nobody can learn from as text."""
    odd = [
        name
        for name in frame
        if frame[name].dtype == np.dtype(object)
        and not frame[name].dropna().map(type).isin(_SCALARS).all()
    ]
    return frame.assign(**{n: frame[n].map(str).where(frame[n].notna(), None) for n in odd})


# Readers


def _gzip(path: Path, told: Told) -> File:
    with gzip.open(path) as packed:
        content = packed.read(MOST_UNPACKED + 1)
    check_unpacked(path, len(content))
    return _of_text(path, content, told)


def _zip(path: Path, told: Told) -> File:
    with zipfile.ZipFile(path) as archive:
        names = [n for n in archive.namelist() if not n.endswith("/") and "__MACOSX" not in n]
        tables = [n for n in names if n.lower().endswith((".csv", ".tsv", ".txt"))]
        if len(tables) != 1:
            raise UserError(
                f"{path} must hold one .csv, .tsv or .txt table, got {listed(names)}: unpack it"
            )
        found = _of_text(path, archive.read(tables[0]), told)
    return replace(found, place=tables[0])


def _of_text(path: Path, content: bytes, told: Told) -> File:
    style = Style.of(content, told.style)
    try:
        text = content.decode(style.encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not written in {style.encoding} (byte {error.start:,}): say by --encoding "
            "in which it is"
        ) from None
    if not text.strip():
        raise UserError(f"{path} is empty")
    above = lines_above(rows := first_lines(text, style.separator))
    text, again = without_other_headers(text, above, style.separator)
    columns = text.partition("\n")[0].count(style.separator) + 1
    if columns > _MOST_COLUMNS:
        raise UserError(
            f"{path} has about {columns:,} columns; at most {_MOST_COLUMNS:,} can be cleaned"
        )
    options: dict[str, Any] = {"sep": style.separator, "index_col": False, "low_memory": False}
    options |= {"skiprows": above, "skipinitialspace": is_spaced(text, style.separator)}
    with warnings.catch_warnings():
        # Where the header names too few columns, a mistake would be hidden. Of text, pandas warns
        # of separators at the ends of lines, too.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            frame = pd.read_csv(io.StringIO(text), na_values=ERRORS, **options)
        except (pd.errors.ParserWarning, pd.errors.ParserError) as error:
            raise UserError(f"{path} {uneven(str(error))}") from None
        warnings.simplefilter("ignore", pd.errors.ParserWarning)
        written = pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False, **options)
    frame, decimal = read_numbers(frame, written, style.decimal)
    style, header = replace(style, decimal=decimal), rows[above] if rows else []
    return File(path, "", written, frame, style, "", above, _twice(header), again)


def _twice(header: list[Any]) -> tuple[str, ...]:
    counts = Counter(str(name).strip() for name in header)
    return tuple(name for name, count in counts.items() if name and count > 1)


def _excel(path: Path, told: Told) -> File:
    with pd.ExcelFile(path) as book:
        sheets = [str(name) for name in book.sheet_names]
        shown = [str(sheet.title) for sheet in book.book if sheet.sheet_state == "visible"]
        sheet = told.sheet or [*shown, *sheets][0]
        if sheet not in sheets:
            raise UserError(f"{path} has no sheet {quoted(sheet)}: it has {listed(sheets)}")
        first = pd.read_excel(book, sheet_name=sheet, header=None, nrows=20)
        cells = first.astype(object).where(first.notna(), "").to_numpy().tolist()
        above = lines_above(cells)
        where: dict[str, Any] = {"sheet_name": sheet, "header": above}
        as_is: dict[str, Any] = {"dtype": object, "keep_default_na": False, "na_values": [""]}
        frame = pd.read_excel(book, **where, na_values=ERRORS)
        written = pd.read_excel(book, **where, **as_is)
    if path.stat().st_size < _SMALL:
        _fill_merged(path, sheet, above, frame, written)
    more = f" of {listed(sheets)}; choose by --sheet" if len(sheets) > 1 else ""
    header, place = cells[above] if cells else [], f"sheet {quoted(sheet)}{more}"
    return File(path, "", written, frame, None, place, above, _twice(header))


def _fill_merged(path: Path, sheet: str, above: int, *frames: pd.DataFrame) -> None:
    """Cells that are merged over several rows have their value in each of them."""
    from openpyxl import load_workbook

    for area in load_workbook(path)[sheet].merged_cells.ranges:
        top, left = area.min_row - above - 2, area.min_col - 1
        if top >= 0 and area.max_row > area.min_row:
            for frame in frames:
                frame.iloc[top + 1 : area.max_row - above - 1, left] = frame.iloc[top, left]


def _database(path: Path, told: Told) -> File:
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as base:
        found = base.execute("SELECT name, type FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'")
        kinds = {name: kind for name, kind in found if kind in ("table", "view")}
        # A view is a program: it runs only if its name is given.
        tables = [name for name, kind in kinds.items() if kind == "table"]
        if told.table is None and len(tables) != 1:
            raise UserError(f"{path} has the tables {listed(kinds)}: choose one with --table")
        table = told.table or tables[0]
        if table not in kinds:
            raise UserError(f"{path} has no table {quoted(table)}: it has {listed(kinds)}")
        doubled = table.replace('"', '""')
        frame = pd.read_sql_query(f'SELECT * FROM "{doubled}"', base)
    return File(path, "", frame, frame, place=f"table {quoted(table)}")


def _arrow(kind: str, path: Path) -> pd.DataFrame:
    """A file of Arrow's, checked first: texts with damaged offsets would end the whole process."""
    try:
        import_module(f"pyarrow.{kind}").read_table(path).validate(full=True)
        found: pd.DataFrame = getattr(pd, f"read_{kind}")(path)
    except MemoryError as error:  # damaged sizes
        raise UserError(
            f"{path} asks for more memory than there is ({error}): is it whole?"
        ) from error
    return found


def _without_index(frame: pd.DataFrame) -> pd.DataFrame:
    """With an index that has a name as a column, as it is in the file."""
    return frame.reset_index(allow_duplicates=True) if any(frame.index.names) else frame


def _plain(path: Path, frame: pd.DataFrame) -> File:
    return File(path, "", frame, frame)


_ARCHIVES = (".zip", *BOOKS)
_READERS: dict[str, Callable[[Path, Told], File]] = {
    **dict.fromkeys(
        (".csv", ".tsv", ".txt"), lambda path, told: _of_text(path, path.read_bytes(), told)
    ),
    ".gz": _gzip,
    ".zip": _zip,
    **dict.fromkeys(BOOKS, _excel),
    ".parquet": lambda path, _: _plain(path, _without_index(_arrow("parquet", path))),
    ".feather": lambda path, _: _plain(path, _arrow("feather", path)),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), lambda path, _: _plain(path, records(path))),
    **dict.fromkeys(BASES, _database),
}
