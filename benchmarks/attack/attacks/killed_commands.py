"""`run`, `sweep` and `clean` that are killed at any moment, and started again."""

from __future__ import annotations

import json
import random
import signal
import time
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from attack.commands import judge, start
from attack.tally import Tally, expect

NAME, SHARE = "killed commands", 9
_EXPERIMENT = """
name = "tiny"
data = "digits"
seeds = [0]
threads = 1
problem = {kind = "hyper-cleaning", corruption = 0.3, train_rows = 200, validation_rows = 100}
budget = {steps = 40}
[[algorithms]]
label = "hoag"
name = "hoag"
settings = {outer_lr = 1.0, preconditioner = "jacobi", inner = {solver = "NewtonCG", tol = 1e-3}}
[sweep.hoag]
outer_lr = [0.5, 1.0]
"""


def attack(tally: Tally, tries: int, chance: random.Random) -> None:
    Path("tiny.toml").write_text(_EXPERIMENT)
    frame = pd.DataFrame({"width": [float(i % 3) for i in range(60)], "label": list("abc") * 20})
    frame.to_csv("train.csv", index=False)
    for i in range(tries):
        kind, wait = ("run", "sweep", "clean")[i % 3], chance.uniform(1, 6)
        tally.attempt(f"{kind} {i}", lambda i=i, k=kind, w=wait: _again(k, f"{k}-{i}", w))


def _words(kind: str, place: str) -> tuple[str, ...]:
    clean = ("clean", "train.csv", "--label", "label", "--force")
    return {
        "run": ("run", "tiny.toml", "-o", place),
        "sweep": ("sweep", "tiny.toml", "--storage", f"sqlite:///{place}.db", "--write", place),
        "clean": (*clean, "--output", place),
    }[kind]


def _again(kind: str, place: str, wait: float) -> None:
    killed = start(*_words(kind, place))
    time.sleep(wait)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    judge(start(*_words(kind, place)))
    expect(_results(kind, place) == _reference(kind), "the results are not those of a whole run")


@cache
def _reference(kind: str) -> Any:
    judge(start(*_words(kind, f"whole-{kind}")))
    return _results(kind, f"whole-{kind}")


def _results(kind: str, place: str) -> Any:
    """All that does not depend on the clock."""
    if kind == "clean":
        return Path(place, "labels.csv").read_bytes()
    if kind == "sweep":
        return Path(place).read_text()
    lines = Path(place, "runs/hoag/seed-0/metrics.jsonl").read_text().splitlines()
    last = json.loads(lines[-1])
    return {key: value for key, value in last.items() if "seconds" not in key}
