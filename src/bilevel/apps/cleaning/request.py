"""What the user asked for, and what was made of the files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from bilevel.apps.cleaning.columns import Array, Column
from bilevel.apps.cleaning.given import File, Told


@dataclass(frozen=True)
class Request:
    """What the user asked for; see `bilevel clean --help`."""

    train: Path
    label: str
    output: Path
    trusted: str | None = None
    annotators: tuple[str, ...] = ()
    task: str = "auto"
    text: tuple[str, ...] = ()
    category: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    told: Told = field(default_factory=Told)
    output_format: str | None = None
    seed: int = 0
    force: bool = False


@dataclass(frozen=True)
class Prepared:
    """Everything that the cleaning needs, checked; and what the user should be warned of.

    Args:
        request: what was asked for.
        file: the user's table.
        frame: the features of its rows, and after them of trusted rows from another file.
        labels: of the same rows, as text; None where there is none.
        trusted: which of them are right.
        fair, audit: of trusted rows, as in `trusted.Known`.
        corrected: the numbers of rows that were checked, and whose label was wrong.
        votes: what each annotator said of each row; None without annotators.
        values: the labels as numbers, where they are to be judged so.
        columns: what each column is taken for.
        warnings: in whole sentences.
    """

    request: Request
    file: File
    frame: pd.DataFrame
    labels: Array
    trusted: Array
    fair: Array | None
    audit: tuple[int, int] | None
    corrected: Array | None
    votes: Array | None
    values: Array | None
    columns: list[Column]
    warnings: list[str]
