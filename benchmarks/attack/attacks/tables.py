"""Damaged tables: CSV, Parquet and NPZ, as `bilevel clean` reads them."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pandas as pd

from attack.mutation import mutate
from attack.tally import Tally, expect
from bilevel.apps.cleaning.features import class_numbers, encode, kinds_of_columns
from bilevel.apps.cleaning.tables import read_table

NAME, SHARE = "tables", 900


def attack(tally: Tally, tries: int, chance: random.Random) -> None:
    frame = pd.DataFrame(
        {
            "width": [chance.random() for _ in range(30)],
            "colour": [chance.choice(("red", "green")) for _ in range(30)],
            "label": [f"{i % 3:03}" for i in range(30)],
        }
    )
    frame.to_csv("good.csv", index=False)
    frame.to_parquet("good.parquet")
    np.savez("good.npz", X=frame[["width"]].to_numpy(), label=frame.label.to_numpy(str))
    whole = {file.suffix: file.read_bytes() for file in Path().glob("good.*")}
    for i in range(tries):
        suffix = sorted(whole)[i % 3]
        file = Path(f"bad{suffix}")
        file.write_bytes(mutate(whole[suffix], chance))
        tally.attempt(f"{suffix} {i}", lambda file=file: _prepare(file))


def _prepare(file: Path) -> None:
    train = read_table(file, "label")
    features = encode(kinds_of_columns(train, train, []), train, train)
    labels, _, classes = class_numbers(train, train)
    expect(np.isfinite(features.train).all(), "features that are not finite")
    expect(len(labels) == len(features.train) and labels.max() < len(classes), "rows are lost")
