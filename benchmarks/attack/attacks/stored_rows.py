"""Damaged .npy and Parquet files under `bilevel.stored`."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from bilevel.stored import NpyRows, ParquetRows

from attack.mutation import mutate
from attack.tally import Tally, expect
from bilevel.errors import UserError

NAME, SHARE = "stored rows", 700


def attack(tally: Tally, tries: int, chance: random.Random) -> None:
    numbers = np.arange(60.0).reshape(20, 3)
    np.save("good.npy", numbers)
    pq.write_table(pa.table({"a": numbers[:, 0], "b": numbers[:, 1]}), "good.parquet")
    whole = {kind: Path(f"good.{kind}").read_bytes() for kind in ("npy", "parquet")}
    for i in range(tries):
        kind = ("npy", "parquet")[i % 2]
        file = Path(f"bad-{i}.{kind}")
        file.write_bytes(mutate(whole[kind], chance))
        tally.attempt(f"{kind} {i}", lambda file=file: _read(file))
        file.unlink()


def _read(file: Path) -> None:
    rows = NpyRows(file) if file.suffix == ".npy" else ParquetRows(file)
    try:
        found = rows.all()
    except MemoryError as error:  # a shape of terabytes, refused by its size
        raise UserError(str(error)) from error
    except ValueError as error:  # NaN and infinity are named with their row
        expect("clean the file first" in str(error) or isinstance(error, UserError), repr(error))
        raise UserError(str(error)) from error
    expect(tuple(found.shape) == rows.shape, f"{tuple(found.shape)} of {rows.shape}")
