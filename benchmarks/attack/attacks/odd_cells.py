"""Whole tables of odd cells under odd names, read from each kind of file and written to another."""

from __future__ import annotations

import datetime
import json
import random
import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attack.tally import Tally, expect
from bilevel.apps.cleaning.columns import recognise
from bilevel.apps.cleaning.features import Encoder
from bilevel.apps.cleaning.files import read
from bilevel.apps.cleaning.labels import apart
from bilevel.apps.cleaning.writing import WRITTEN, write

NAME, SHARE = "odd cells", 300
_ROWS = 12
_CELLS: tuple[tuple[Any, ...], ...] = (
    ("=1+1", "@x", "-2", "+49 30", "\t", "'"),
    ("9999-12-31", "0000-00-00", "31/02/2024", "1/2/1066", "2024-05-17T10:00:00Z"),
    ("#REF!", "1,5", "1.234,50", "(3)", "12 %", "٣", "½", "1e400", "0x1F"),
    ("\x00", "\x0b", "\u2028", "\u202eabc", "🌱" * 50, "a\r\nb", "</script>", "[red]"),
    (1e308, -1e308, float("inf"), float("nan"), 5e-324),
    (2**70, -1, 0, None, True),
    (b"\xff\0", b"", None),
    (["a", ["b"]], [], {"a": 1}, None),
    (Decimal("1.50"), Decimal("NaN"), None),
    (datetime.date(1, 1, 1), datetime.datetime(2024, 1, 2, 3, 4), datetime.time(1, 2)),
)
_NAMES = (
    "=cmd",
    "",
    " a ",
    "a",
    "A",
    "Unnamed: 3",
    "flagged",
    "a.1",
    "3.0",
    "\u202ex",
    "[b]",
    "\n",
)
_READ_FROM = (".csv", ".xlsx", ".jsonl", ".db", ".parquet")


def attack(tally: Tally, tries: int, chance: random.Random) -> None:
    for i in range(tries):
        kind, other = chance.choice(_READ_FROM), chance.choice(WRITTEN)
        names = chance.sample(_NAMES, 3)
        cells = {name: chance.choices(chance.choice(_CELLS), k=_ROWS) for name in names}
        labels = [chance.choice(("007", "1.10", "=x")) for _ in range(_ROWS)]
        rows = pd.DataFrame(cells | {"label": labels}, dtype=object)
        file = Path(f"odd{kind}")
        file.unlink(missing_ok=True)
        try:
            _put(rows, file)
        except Exception:  # this kind of file cannot hold it, whoever writes
            continue
        tally.attempt(
            f"{kind} to {other} {i}", lambda file=file, other=other: _through(file, other)
        )


def _put(rows: pd.DataFrame, file: Path) -> None:
    """As other programs would."""
    if file.suffix == ".csv":
        rows.to_csv(file, index=False)
    elif file.suffix == ".xlsx":
        rows.to_excel(file, index=False)
    elif file.suffix == ".jsonl":
        file.write_text("\n".join(json.dumps(row) for row in rows.to_dict("records")))
    elif file.suffix == ".parquet":
        rows.to_parquet(file)
    else:
        with closing(sqlite3.connect(file)) as base:
            rows.to_sql("rows", base, index=False)


def _through(file: Path, kind: str) -> None:
    found = read(file)
    table, labels = apart(found, "label")
    features = Encoder.fit(table, recognise(table)).transform(table)
    expect(all(np.isfinite(view).all() for view in features), "features that are not finite")
    new = Path(f"again{kind}")
    new.unlink(missing_ok=True)
    write(found.written, new, found, ("label",))
    again = read(new).written
    expect(len(again) == len(found.written), "rows are lost")
    known = labels.notna().to_numpy()  # a formula that no spreadsheet has worked out has no value
    text = again.label[known].astype(str).str.removeprefix("'").tolist()
    expect(text == labels[known].str.removeprefix("'").tolist(), "a label has another text")
