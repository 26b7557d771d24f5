"""How a text file writes its table: encoding, separator, and the comma in its numbers."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pandas as pd

from bilevel.errors import UserError, quoted

_SAMPLE = 1 << 16
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
# What spreadsheets show where a formula failed.
ERRORS = ["#REF!", "#DIV/0!", "#VALUE!", "#NAME?", "#NUM!", "#NULL!", "#N/A", "#NV"]
ERRORS += ["#BEZUG!", "#WERT!", "#ZAHL!", "#VALEUR!", "#NOM?", "#NOMBRE!", "#VALOR!"]
_ORNAMENTS = r"[€$£¥%\s\u00a0\u202f']"  # of prices, shares and Swiss thousands
_NEGATIVE = r"^\((.+)\)$|^(.*\d)-$"  # as accountants write it: (12.50) or 12.50-
# 12 kg or EUR 3.50: a unit that most cells of the column have.
_WITH_UNIT = r"\s*(?:([A-Z]{3})\s)?\s*([-+]?[\d.,\s']*\d)\s*([^\W\d_]{1,5}[²³]?)?\s*"
_DECIMAL_COMMA = re.compile(r"[-+]?(\d+|\d{1,3}(\.\d{3})+),\d+")
_THOUSANDS_COMMA = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?")
_THOUSANDS_POINT = re.compile(r"[-+]?\d{1,3}(\.\d{3})*")
_MOSTLY = 0.8


@dataclass(frozen=True)
class Style:
    """How a file is written; what the user does not say is found.

    >>> Style.of("größe;preis\\n1,5;2\\n".encode("cp1252"))
    Style(encoding='cp1252', separator=';', decimal='')
    """

    encoding: str = ""
    separator: str = ""
    decimal: str = ""

    @staticmethod
    def of(content: bytes, told: Style | None = None) -> Style:
        told = told or Style()
        encoding = told.encoding or _encoding(content)
        try:
            text = content[: 4 * _SAMPLE].decode(encoding, errors="ignore")
        except LookupError:
            raise UserError(
                f"there is no encoding {quoted(encoding)}: try utf-8, cp1252 or utf-16"
            ) from None
        if len(told.separator) > 1 or told.separator in ("\n", "\r", '"'):
            raise UserError(f"--separator {quoted(told.separator)} must be one sign, such as ;")
        if told.decimal not in ("", ".", ","):
            raise UserError(f"--decimal {quoted(told.decimal)} must be . or ,")
        return Style(encoding, told.separator or _separator(text), told.decimal)

    @property
    def words(self) -> str:
        """For people."""
        written = _SEPARATORS.get(self.separator, quoted(self.separator))
        comma = ", decimal commas" if self.decimal == "," else ""
        return f"{self.encoding.removesuffix('-sig').upper()}, separated by {written}{comma}"


def _encoding(content: bytes) -> str:
    for mark, name in _MARKS.items():
        if content.startswith(mark):
            return name
    head = content[:_SAMPLE]
    for start, name in ((1, "utf-16-le"), (0, "utf-16-be")):
        if len(head) > 3 and head[start::2].count(0) > 0.4 * len(head) / 2:
            return name
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


def _separator(text: str) -> str:
    """The one by which the first lines have the same number of columns, more than one."""
    best = (0.0, 0, ",")
    for separator in _SEPARATORS:
        lines = first_lines(text, separator)
        # The last may have been cut off.
        counts = Counter(len(line) for line in (lines[:-1] if len(lines) > 2 else lines) if line)
        columns, times = counts.most_common(1)[0] if counts else (1, 0)
        if columns > 1:
            best = max(
                best, (times / counts.total(), columns, separator), key=lambda found: found[:2]
            )
    return best[2]


def lines_above(rows: list[list[Any]]) -> int:
    """How many lines stand above the header: titles, dates of an export, empty ones.

    >>> rows = [["Orders of 2024", "", ""], [], ["a", "b", "c"], ["1", "", "3"], ["4", "5", "6"]]
    >>> lines_above(rows)
    2
    """
    filled = [sum(str(cell).strip() != "" for cell in row) for row in rows]
    usual = max(Counter(filled).most_common(1)[0][0], max(filled) / 2) if filled else 0
    return next((j for j, count in enumerate(filled) if count > usual / 2), 0)


def is_spaced(text: str, separator: str) -> bool:
    """Whether a blank stands between separators and quotation marks, as in "a", "b"."""
    return f'{separator} "' in text.partition("\n")[0] and separator != " "


def first_lines(text: str, separator: str, lines: int = 20) -> list[list[str]]:
    """The cells of the first lines."""
    spaced = is_spaced(text, separator)
    rows = csv.reader(io.StringIO(text), delimiter=separator, skipinitialspace=spaced)
    try:
        return list(itertools.islice(rows, lines))
    except csv.Error:  # a cell without end
        return []


def without_other_headers(text: str, above: int, separator: str) -> tuple[str, int]:
    """Files that were put together have their header again and again; and how often it was.

    >>> without_other_headers("a,b\\n1,2\\na,b\\n3,4\\n", 0, ",")
    ('a,b\\n1,2\\n3,4\\n', 1)
    """
    *before, head, rest = [*text.split("\n", above + 1), ""][: above + 2]
    if separator not in head or head not in rest:
        return text, 0
    lines = rest.split("\n")
    kept = [line for line in lines if line != head]
    return "\n".join([*before, head, *kept]), len(lines) - len(kept)


def uneven(reason: str) -> str:
    """What pandas could not make a table of, in plainer words.

    >>> uneven("Error tokenizing data. C error: Expected 7 fields in line 51, saw 9")[:46]
    'has 9 cells in line 51, but a header of 7: nam'
    """
    if found := re.search(r"EOF inside string starting at row (\d+)", reason):
        row = int(found[1])
        return f"has a quotation mark in row {row} that is never closed: close it, or leave it out"
    if found := re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", reason):
        what = f"has {found[3]} cells in line {found[2]}, but a header of {found[1]}"
    else:
        what = "has rows with more cells than its header has names"
    return f"{what}: name all columns, and put cells that hold a separator in quotation marks"


def read_numbers(frame: pd.DataFrame, raw: pd.DataFrame, decimal: str) -> tuple[pd.DataFrame, str]:
    """The frame with numbers where a column holds them in another spelling, and the decimal sign.

    1.234,50 and 1,234.50, 12 %, € 5, 3 kg, (3.20): pandas leaves these as text. "1,234" is a
    thousand, unless another column shows that commas are decimal.
    """
    texts = [name for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name].dtype)]
    plain: dict[Any, pd.Series] = {}
    for name in texts:
        bare = _without_unit(frame[name].dropna().astype(str))
        bare = bare.str.replace(_ORNAMENTS, "", regex=True)
        bare = bare.str.replace(_NEGATIVE, r"-\1\2", regex=True)
        if len(bare) and bare.iloc[:200].str.fullmatch(r"[-+]?[\d.,]*\d").mean() > _MOSTLY:
            plain[name] = bare
    if not decimal:
        decimal = "," if any(_shows_decimal_comma(bare) for bare in plain.values()) else "."
    read = {name: _numbers(bare, decimal) for name, bare in plain.items()}
    if decimal == ",":  # pandas has read 1.234 as little more than one
        for name in set(frame.columns) - set(texts):
            words = raw[name][raw[name] != ""]
            if frame[name].dtype.kind == "f" and words.str.fullmatch(_THOUSANDS_POINT).all():
                read[name] = _numbers(words, decimal)
    fitting = {n: v.reindex(frame.index) for n, v in read.items() if v.notna().mean() > _MOSTLY}
    return frame.assign(**fitting), decimal


def _without_unit(cells: pd.Series) -> pd.Series:
    """Cells without the unit that most of them have; missing where they have another one.

    >>> _without_unit(pd.Series([*["2.5 kg"] * 9, "3", "700 g"])).tolist()[-3:]
    ['2.5', '3', nan]
    """
    if not cells.iloc[:200].str.fullmatch(_WITH_UNIT).mean() > _MOSTLY:
        return cells
    parts = cells.str.extract(f"^{_WITH_UNIT}$").fillna("")
    unit = (parts[0] + parts[2]).where(parts[1] != "")
    usual = unit.mode()[0]
    if not usual or (unit == usual).mean() <= _MOSTLY:
        return cells
    return parts[1].where(unit.isin([usual, ""]))


def _shows_decimal_comma(bare: pd.Series) -> bool:
    decimal, thousands = (bare.str.fullmatch(form) for form in (_DECIMAL_COMMA, _THOUSANDS_COMMA))
    return bool((decimal & ~thousands).mean() > 1 - _MOSTLY)


def _numbers(bare: pd.Series, decimal: str) -> pd.Series:
    """What is well written as a number, and gaps elsewhere: 03.04.2024 is none."""
    thousands = "." if decimal == "," else ","
    form = rf"[-+]?(\d+|\d{{1,3}}(\{thousands}\d{{3}})+)(\{decimal}\d+)?"
    words = bare.where(bare.str.fullmatch(form))
    words = words.str.replace(thousands, "", regex=False).str.replace(decimal, ".", regex=False)
    return pd.to_numeric(words, errors="coerce")
