"""Small tables with wrong labels, and the `clean` command to try on them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

from bilevel.cli.main import main
from bilevel.datasets import corrupt

NAMES = np.array(["ant", "bee", "cat"])


class Dirty(NamedTuple):
    """A table with wrong labels, a table to trust, and which rows of the first are wrong."""

    train: pd.DataFrame
    trusted: pd.DataFrame
    wrong: np.ndarray[Any, Any]


def table(rows: int, seed: int) -> pd.DataFrame:
    """Three clouds of points: two numbers, a category that tells a little, and the label."""
    random = np.random.default_rng(seed)
    classes = np.arange(rows) % 3
    centres = np.array([[0.0, 20.0], [3.0, 20.0], [0.0, 50.0]])
    points = centres[classes] + random.normal(size=(rows, 2)) * [1, 10]
    colours = np.where(random.random(rows) < 0.7, classes, random.integers(3, size=rows))
    return pd.DataFrame(
        {
            "width": points[:, 0],
            "height": points[:, 1],
            "colour": np.array(["red", "green", "blue"])[colours],
            "label": NAMES[classes],
        }
    )


def dirty(rows: int = 150, trusted: int = 60) -> Dirty:
    """Labels of which each was drawn anew with probability 0.3."""
    train = table(rows, seed=1)
    labels, _, wrong = corrupt(np.arange(rows) % 3, 0.3, classes=3, seed=0)
    return Dirty(train.assign(label=NAMES[labels]), table(trusted, seed=2), wrong)


def with_gaps(frame: pd.DataFrame, seed: int) -> pd.DataFrame:
    """The same, with a tenth of the features' cells empty."""
    cells = np.random.default_rng(seed).random((len(frame), 3)) < 0.1
    features = frame.drop(columns="label").mask(cells)
    return features.assign(label=frame.label)


class Shown(NamedTuple):
    """How a command ended, and what it showed."""

    code: int
    out: str
    err: str


class Command:
    """`bilevel clean` in this process, in a folder of its own; its output goes to `cleaned`."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.folder, self._monkeypatch, self._capsys = folder, monkeypatch, capsys

    def write(self, **frames: pd.DataFrame) -> None:
        """Each frame as NAME.csv."""
        for name, frame in frames.items():
            frame.to_csv(self.folder / f"{name}.csv", index=False)

    def __call__(self, train: str, *options: str) -> Shown:
        arguments = ["clean", train, *options]
        for option, value in (("--label", "label"), ("--output", "cleaned")):
            if option not in arguments:
                arguments += [option, value]
        return self._run(arguments)

    def predict(self, table: str, *options: str) -> Shown:
        """`bilevel predict` with the model in `cleaned`."""
        return self._run(["predict", "cleaned/model.npz", table, *options])

    def _run(self, arguments: list[str]) -> Shown:
        self._monkeypatch.chdir(self.folder)
        self._monkeypatch.setattr(sys, "argv", ["bilevel", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return Shown(int(ended.value.code or 0), *self._capsys.readouterr())

    def labels(self, train: str, *options: str) -> pd.DataFrame:
        """The table that a good run writes, its labels as text."""
        shown = self(train, *options)
        assert shown.code == 0, shown.err
        return pd.read_csv(
            self.folder / "cleaned" / "labels.csv", dtype={"label": str, "likely_label": str}
        )

    def report(self) -> str:
        return (self.folder / "cleaned" / "report.html").read_text(encoding="utf-8")
