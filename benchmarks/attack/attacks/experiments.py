"""Damaged experiment files and run folders."""

from __future__ import annotations

import random
from pathlib import Path

from attack.mutation import mutate
from attack.tally import Tally, expect
from bilevel.lab.experiments.experiment import PAPER, load
from bilevel.lab.run_log import RunLog

NAME, SHARE = "experiments", 600
_LINE = b'{"step": 0, "seconds": 0.1, "outer_value": 1.5, "test_accuracy": 0.9}\n'


def attack(tally: Tally, tries: int, chance: random.Random) -> None:
    files = sorted(PAPER.glob("*.toml"))
    folder = Path("seed-0")
    folder.mkdir()
    for i in range(tries):
        if i % 2:
            Path("bad.toml").write_bytes(mutate(chance.choice(files).read_bytes(), chance))
            tally.attempt(f"toml {i}", _load)
        else:
            (folder / "metrics.jsonl").write_bytes(mutate(_LINE * 3, chance))
            tally.attempt(f"metrics {i}", lambda: _resume(folder))


def _load() -> None:
    expect(load("bad.toml").resolved().seeds, "no seeds")


def _resume(folder: Path) -> None:
    RunLog(folder).curve()
    last = RunLog(folder).begin(-1)
    expect(last is None and not RunLog(folder).lines(), "lines without a checkpoint")
