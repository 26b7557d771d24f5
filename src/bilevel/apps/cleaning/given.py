"""A file that the user gave: what was said about it, and what was found."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from bilevel.apps.cleaning.sniffing import Style
from bilevel.errors import quoted


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

    @staticmethod
    def of(
        separator: str, decimal: str, encoding: str, sheet: str | None, table: str | None
    ) -> Told:
        """Of the words of a command, where a tab is \\t."""
        return Told(Style(encoding, separator.replace("\\t", "\t"), decimal), sheet, table)


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
        again: how many lines that repeat the header were left out.
    """

    path: Path
    kind: str
    written: pd.DataFrame
    frame: pd.DataFrame
    style: Style | None = None
    place: str = ""
    above: int = 0
    twice: tuple[str, ...] = ()
    again: int = 0

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
        if self.again:
            how += "; " + ("a line" if self.again == 1 else f"{self.again} lines")
            how += " with the header again left out"
        if self.twice:
            second = quoted(f"{self.twice[0]}.1")
            how += f"; of columns with the same name all but the first are numbered, as {second}"
        return f"{self.path}: {rows:,} rows, {columns:,} columns{'; ' + how if how else ''}"
