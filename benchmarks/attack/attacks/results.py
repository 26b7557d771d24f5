"""Damaged results: the model of `clean` under `predict`, and the folder of `bench`."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pandas as pd

from attack.commands import call
from attack.mutation import crafted, mutate
from attack.tally import Tally, expect
from bilevel.apps.cleaning.files import read
from bilevel.apps.cleaning.model import load, predict
from bilevel.lab.bench.job import Bench, run
from bilevel.lab.bench.page import table

NAME, SHARE = "results", 500
_BENCH = Bench("quadratics", ("saba",), 1.0, 1)
_ENDING = {"status": "time_limit", "message": "the time limit of 1 s"}
_LINE = {"step": 0, "seconds": 0.0, "squared_gradient": 2.0, "gap": 1.0}


def attack(tally: Tally, tries: int, chance: random.Random) -> None:
    chosen = [chance.choice("abc") for _ in range(60)]
    rows = {"width": [ord(c) + chance.random() for c in chosen], "word": chosen, "label": chosen}
    pd.DataFrame(rows).to_csv("train.csv", index=False)
    call("clean", "train.csv", "--label", "label", "--output", "cleaned")
    model = Path("cleaned/model.npz").read_bytes()
    for i in range(tries):
        if i % 2:
            Path("bad.npz").write_bytes(chance.choice((mutate, crafted))(model, chance))
            tally.attempt(f"model {i}", _predict)
        else:
            _put_bench(chance)
            tally.attempt(f"bench {i}", _compare)


def _predict() -> None:
    found = predict(load(Path("bad.npz")), read(Path("train.csv")).frame, "train.csv")
    sure = found["probability"]
    expect(len(found["predicted"]) == len(sure) == 60, "rows are lost")
    expect(np.isfinite(sure).all() and (sure <= 1 + 1e-6).all(), "probabilities that are none")


def _put_bench(chance: random.Random) -> None:
    """A bench that has been run, with one of its files damaged."""
    shutil.rmtree("bench", ignore_errors=True)
    place = Path("bench/runs/saba/seed-0")
    place.mkdir(parents=True)
    lines = [{**_LINE, "step": k, "seconds": k / 3, "gap": 0.1**k} for k in range(4)]
    files = {
        Path("bench/bench.json"): json.dumps({"problem": "quadratics", "seconds": 1.0}),
        Path("bench/first-use.json"): json.dumps({"saba": 3.5}),
        place / "metrics.jsonl": "".join(json.dumps(line) + "\n" for line in lines),
        place / "done.json": json.dumps(_ENDING),
    }
    for file, text in files.items():
        file.write_text(text)
    chosen = chance.choice(list(files))
    chosen.write_bytes(chance.choice((mutate, crafted))(chosen.read_bytes(), chance))


def _compare() -> None:
    curves = run(_BENCH, Path("bench"), lambda *_: None)
    expect(len(table(_BENCH, curves, Path("bench")).rows) == 1, "a method is lost")
