"""Tables in files of the kinds that people have, read and written back."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import sqlite3
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bilevel.apps.cleaning.sniffing import Style, first_lines, lines_above, read_numbers
from bilevel.durable.regular import MOST_UNPACKED, check_archive, check_given, check_unpacked
from bilevel.errors import UserError, listed, quoted, short

_MOST_COLUMNS = 50_000
_SMALL = 20_000_000  # bytes of a workbook in which merged cells are looked for


@dataclass(frozen=True)
class Told:
    """What the user says about a file; what is not said is found.

    Args:
        style: of a text file.
        sheet: of a workbook.
        table: of a database.
    """

    style: Style = field(default_factory=Style)
    sheet: str | None = None
    table: str | None = None


@dataclass(frozen=True)
class File:
    """A table as it was written, and as it is understood.

    Args:
        path: where it is.
        kind: its ending, e.g. ".csv" or ".csv.gz".
        written: each cell as it stands in the file; text files have text only.
        frame: the same with numbers and gaps where they are.
        style: of a text file.
        place: the sheet or table inside, if there is one.
        above: how many lines above the header were left out.
        twice: names that several columns have: all but the first are numbered.
    """

    path: Path
    kind: str
    written: pd.DataFrame
    frame: pd.DataFrame
    style: Style | None = None
    place: str = ""
    above: int = 0
    twice: tuple[str, ...] = ()

    @property
    def decimal(self) -> str:
        """The sign before the fraction of a number."""
        return (self.style and self.style.decimal) or "."

    @property
    def words(self) -> str:
        """What was found, for people."""
        rows, columns = self.frame.shape
        how = self.style.words if self.style else self.place
        if self.above:
            lines = "1 line" if self.above == 1 else f"{self.above} lines"
            how += f"; {lines} above the header left out"
        if self.twice:
            second = quoted(f"{self.twice[0]}.1")
            how += f"; of columns with the same name all but the first are numbered, as {second}"
        return f"{self.path}: {rows:,} rows, {columns:,} columns{'; ' + how if how else ''}"


def read(path: Path, told: Told | None = None) -> File:
    """A file of any known kind.

    Raises:
        UserError: no such file, an unknown kind, no rows.
    """
    told = told or Told()
    try:
        check_given(path)
        kind = _kind(path)
        if kind in _ARCHIVES and zipfile.is_zipfile(path):
            check_archive(path)
        found = _READERS[kind](path, told)
    except (UserError, MemoryError):
        raise
    except ImportError as error:
        raise UserError(
            f'{path} needs another package: pip install "bilevel[cli]" ({error})'
        ) from error
    except Exception as error:  # what the readers raise is theirs to choose
        reason = short(" ".join(str(error).split()), 200)
        raise UserError(f"{path} cannot be read as {path.suffix[1:]}: {reason}") from error
    return _checked(replace(found, kind=kind))


def _kind(path: Path) -> str:
    name = path.name.lower()
    for kind in sorted(_READERS, key=len, reverse=True):
        if name.endswith(kind):
            return kind
    raise UserError(
        f"{path} ends in {quoted(path.suffix)}: give a file that ends in {', '.join(_READERS)}"
    )


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
        raise UserError(f"{file.path} has a header but no rows")
    last = int(np.flatnonzero(frame.notna().any(axis=1))[-1:].sum()) + 1  # empty rows come after it
    index = pd.RangeIndex(1, last + 1)  # as people count, without the header
    frame, written = frame[:last], file.written.loc[:, used].set_axis(frame.columns, axis=1)[:last]
    return replace(file, frame=frame.set_axis(index), written=written.set_axis(index))


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
    text = content.decode(style.encoding, errors="strict").removeprefix("\ufeff")
    if not text.strip():
        raise UserError(f"{path} is empty")
    above = lines_above(rows := first_lines(text, style.separator))
    columns = text.partition("\n")[0].count(style.separator) + 1
    if columns > _MOST_COLUMNS:
        raise UserError(
            f"{path} has about {columns:,} columns; at most {_MOST_COLUMNS:,} can be cleaned"
        )
    options: dict[str, Any] = {"sep": style.separator, "index_col": False, "low_memory": False}
    options["skiprows"] = above
    with warnings.catch_warnings():
        # Where the header names too few columns, a mistake would be hidden. Of text, pandas warns
        # of separators at the ends of lines, too.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            frame = pd.read_csv(io.StringIO(text), **options)
        except pd.errors.ParserWarning:
            raise UserError(f"{path} has rows with more cells than its header has names") from None
        warnings.simplefilter("ignore", pd.errors.ParserWarning)
        written = pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False, **options)
    frame, decimal = read_numbers(frame, written, style.decimal)
    style, header = replace(style, decimal=decimal), rows[above] if rows else []
    return File(path, "", written, frame, style, "", above, _twice(header))


def _twice(header: list[Any]) -> tuple[str, ...]:
    counts = Counter(str(name).strip() for name in header)
    return tuple(name for name, count in counts.items() if name and count > 1)


def _excel(path: Path, told: Told) -> File:
    with pd.ExcelFile(path) as book:
        sheets = [str(name) for name in book.sheet_names]
        sheet = told.sheet or sheets[0]
        if sheet not in sheets:
            raise UserError(f"{path} has no sheet {quoted(sheet)}: it has {listed(sheets)}")
        first = pd.read_excel(book, sheet_name=sheet, header=None, nrows=20)
        cells = first.astype(object).where(first.notna(), "").to_numpy().tolist()
        above = lines_above(cells)
        where: dict[str, Any] = {"sheet_name": sheet, "header": above}
        as_is: dict[str, Any] = {"dtype": object, "keep_default_na": False, "na_values": [""]}
        frame, written = pd.read_excel(book, **where), pd.read_excel(book, **where, **as_is)
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


def _lines(path: Path, _: Told) -> File:
    """One object a line, or a list of them; what is nested becomes columns a.b, and lists text."""
    text = path.read_text(encoding="utf-8-sig")
    whole = text.lstrip().startswith("[")
    rows = json.loads(text) if whole else [json.loads(x) for x in text.splitlines() if x.strip()]
    frame = pd.json_normalize(rows)
    lists = [name for name in frame if frame[name].map(type).isin((list, dict)).any()]
    return _plain(path, frame.assign(**{name: frame[name].astype(str) for name in lists}))


def _plain(path: Path, frame: pd.DataFrame) -> File:
    return File(path, "", frame, frame)


_ARCHIVES = (".zip", ".xlsx")
_READERS: dict[str, Callable[[Path, Told], File]] = {
    **dict.fromkeys(
        (".csv", ".tsv", ".txt"), lambda path, told: _of_text(path, path.read_bytes(), told)
    ),
    ".gz": _gzip,
    ".zip": _zip,
    ".xlsx": _excel,
    ".parquet": lambda path, _: _plain(path, pd.read_parquet(path)),
    ".feather": lambda path, _: _plain(path, pd.read_feather(path)),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), _lines),
    **dict.fromkeys((".db", ".sqlite", ".sqlite3"), _database),
}


# Writers


def write(frame: pd.DataFrame, path: Path, like: File) -> None:
    """The table in the kind of file that the path ends in, in the style of another file."""
    style = like.style or Style("utf-8", ",", ".")
    text: dict[str, Any] = {"index": False, "encoding": style.encoding, "float_format": "%.6g"}
    text |= {"sep": style.separator, "decimal": style.decimal or ".", "errors": "replace"}
    writers: dict[str, Callable[[], Any]] = {
        ".csv": lambda: frame.to_csv(path, **text),
        ".tsv": lambda: frame.to_csv(path, **(text | {"sep": "\t"})),
        ".gz": lambda: frame.to_csv(path, compression={"method": "gzip", "mtime": 1}, **text),
        ".xlsx": lambda: frame.to_excel(path, index=False),
        ".parquet": lambda: frame.to_parquet(path, index=False),
        ".feather": lambda: frame.reset_index(drop=True).to_feather(path),
        ".jsonl": lambda: frame.to_json(path, orient="records", lines=True, force_ascii=False),
        ".db": lambda: _to_database(frame, path),
    }
    writers[path.suffix]()


def _to_database(frame: pd.DataFrame, path: Path) -> None:
    with closing(sqlite3.connect(path)) as base:
        frame.to_sql("labels", base, index=False)


FORMATS = {".txt": ".csv", ".zip": ".csv", ".gz": ".csv.gz", ".ndjson": ".jsonl", ".json": ".jsonl"}
FORMATS |= {".sqlite": ".db", ".sqlite3": ".db"}
WRITTEN = (".csv", ".tsv", ".csv.gz", ".xlsx", ".parquet", ".feather", ".jsonl", ".db")
