"""What a file is by its first bytes, whatever its name says."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from bilevel.errors import UserError

BOOKS, BASES = (".xlsx", ".xlsm"), (".db", ".sqlite", ".sqlite3")
_SIGNS: dict[bytes, tuple[str, tuple[str, ...]]] = {
    rb"PK(\x03\x04|\x05\x06)": ("a workbook or a ZIP archive", (*BOOKS, ".zip")),
    rb"\x1f\x8b": ("packed by gzip", (".gz",)),
    rb'PAR1(?![\w\s,;|"])': ("a Parquet file", (".parquet",)),
    rb"ARROW1\0|FEA1\0": ("a Feather file", (".feather",)),
    rb"SQLite format 3\0": ("an SQLite database", BASES),
    rb"\xd0\xcf\x11\xe0": ("a workbook with a password, or in the old format of Excel", ()),
    rb"%PDF-": ("a PDF", ()),
    rb"(?i)(\xef\xbb\xbf)?\s*<(!doctype|html|head|table|\?xml)": ("a web page or XML", ()),
}
_SAVE_AGAIN = "open it in the program that made it, and save it as .xlsx or .csv"


def check_sign(path: Path, kind: str) -> None:
    """Raise UserError if the file is of another kind than its ending says."""
    with path.open("rb") as file:
        head = file.read(512)
    what, kinds = next((of for sign, of in _SIGNS.items() if re.match(sign, head)), ("", (kind,)))
    if kind not in kinds:
        do = f"rename it so that it ends in {either(kinds)}" if kinds else _SAVE_AGAIN
        raise UserError(f"{path} is {what}: {do}")
    meant = next((what for what, kinds in _SIGNS.values() if kind in kinds), "")
    if meant and not what:
        raise UserError(
            f"{path} is not {meant}: if it is text, rename it so that it ends in .csv; if not, "
            "save it again in the program that made it"
        )


def either(names: Collection[str]) -> str:
    """Names as a sentence has them.

    >>> either((".csv", ".tsv", ".txt")), either([".csv"])
    ('.csv, .tsv or .txt', '.csv')
    """
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last
