"""`bilevel few-shot train`, killed at any moment and started again, on a tiny set of pictures."""

from __future__ import annotations

import random
import signal
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attack.commands import judge, start
from attack.tally import Tally, expect

NAME, SHARE = "killed trainings", 3
_CLASSES = {"train": 5, "validation": 4, "test": 4}
_TRAIN = f"""
import dataclasses, sys
from bilevel.datasets import fc100 as module
module.fc100 = dataclasses.replace(
    module.fc100, classes={_CLASSES}, shape=(16, 16, 3), fewest_a_class=10)
from bilevel.apps.few_shot import training
training._SAVE_SECONDS = 0.0
sys.argv = ["bilevel", "few-shot", "train", *sys.argv[1:]]
from bilevel.cli.main import main
main()
"""
_WORDS = (
    *("--data", "fc100", "--ways", "3", "--shots", "2", "--queries", "2", "--batch", "2"),
    *("--filters", "4", "--validation-tasks", "3", "--validate-every", "5", "--steps", "30"),
)


def attack(tally: Tally, tries: int, chance: random.Random) -> None:
    _put_pictures(Path("data/fc100"))
    for i in range(tries):
        wait = chance.uniform(2, 9)
        tally.attempt(f"training {i}", lambda i=i, wait=wait: _killed(f"run-{i}", wait))


def _killed(place: str, wait: float) -> None:
    process = _start(place)
    time.sleep(wait)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    judge(_start(place))
    expect(torch.equal(_end(place), _reference()), "another model than that of a whole training")


@cache
def _reference() -> torch.Tensor:
    judge(_start("whole"))
    return _end("whole")


def _start(place: str) -> Any:
    return start("-c", _TRAIN, *_WORDS, "--output", place, more={"BILEVEL_DATA": "data"})


def _end(place: str) -> torch.Tensor:
    found: torch.Tensor = torch.load(Path(place, "last.pt"), weights_only=True)["x"]
    return found


def _put_pictures(folder: Path) -> None:
    generator, first = np.random.default_rng(0), 0
    folder.mkdir(parents=True)
    for split, classes in _CLASSES.items():
        labels = np.repeat(np.arange(classes), 10)
        images = generator.integers(0, 256, (len(labels), 16, 16, 3), dtype=np.uint8)
        names = np.array([f"c{first + c}" for c in range(classes)])
        np.savez(folder / f"{split}.npz", images=images, labels=labels, classes=names)
        first += classes
