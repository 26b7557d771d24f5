"""Tables written back in the kind of file that they came in."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd

from bilevel.apps.cleaning.files import File
from bilevel.apps.cleaning.sniffing import Style


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
