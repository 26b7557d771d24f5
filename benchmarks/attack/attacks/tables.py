"""Damaged tables of every kind that `bilevel clean` reads, and damaged decisions of a review."""

from __future__ import annotations

import random
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd

from attack.mutation import crafted, mutate
from attack.tally import Tally, expect
from bilevel.apps.cleaning.columns import recognise
from bilevel.apps.cleaning.features import Encoder
from bilevel.apps.cleaning.files import read
from bilevel.apps.cleaning.given import File
from bilevel.apps.cleaning.labels import apart
from bilevel.apps.cleaning.trusted import with_trusted

NAME, SHARE = "tables", 1000
_DECISIONS = b"row,label,decision\n1,001,right\n2,000,changed\n17,002,changed\n"


def attack(tally: Tally, tries: int, chance: random.Random) -> None:
    frame = pd.DataFrame(
        {
            "width": [chance.random() for _ in range(30)],
            "colour": [chance.choice(("red", "green")) for _ in range(30)],
            "label": [f"{i % 3:03}" for i in range(30)],
        }
    )
    whole = _written(frame)
    good = read(Path("good.csv"))
    for i in range(tries):
        name = sorted(whole)[i % len(whole)]
        file = Path(name.replace("good", "bad"))
        file.write_bytes(chance.choice((mutate, crafted))(whole[name], chance))
        if name == "decisions.csv":
            tally.attempt(f"decisions {i}", lambda file=file: _decide(good, file))
        else:
            tally.attempt(f"{name} {i}", lambda file=file: _prepare(file))


def _written(frame: pd.DataFrame) -> dict[str, bytes]:
    """The table in each kind of file."""
    frame.to_csv("good.csv", index=False)
    frame.to_csv("good.csv.gz", index=False)
    frame.to_csv("good.tsv", index=False, sep="\t")
    frame.to_parquet("good.parquet")
    frame.to_feather("good.feather")
    frame.to_excel("good.xlsx", index=False)
    frame.to_json("good.jsonl", orient="records", lines=True)
    with zipfile.ZipFile("good.zip", "w") as archive:
        archive.write("good.csv")
    with closing(sqlite3.connect("good.db")) as base:
        frame.to_sql("rows", base, index=False)
    Path("decisions.csv").write_bytes(_DECISIONS)
    return {file.name: file.read_bytes() for file in Path().iterdir()}


def _prepare(file: Path) -> None:
    table, labels = apart(read(file), "label")
    features = Encoder.fit(table, recognise(table)).transform(table)
    expect(all(np.isfinite(view).all() for view in features), "features that are not finite")
    expect(len(labels) == len(features.tree), "rows are lost")


def _decide(good: File, file: Path) -> None:
    known = with_trusted(good, "label", str(file), ())
    named = all(isinstance(label, str) and label.strip() for label in known.labels)
    expect(named, "a label that is none")
    expect(len(known.labels) == len(known.trusted) == len(known.frame), "rows are lost")
