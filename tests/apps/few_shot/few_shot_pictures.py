"""A tiny set of images by class in the data folder, and the `few-shot` command to try on it."""

from __future__ import annotations

import csv
import dataclasses
import functools
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import typer
from PIL import Image

from bilevel.apps.few_shot.checkpoint import Checkpoint, save
from bilevel.apps.few_shot.methods import find
from bilevel.apps.few_shot.settings import Settings
from bilevel.cli.main import build, main
from bilevel.datasets import fc100 as module
from bilevel.models.heads.form import Shape
from bilevel.problem.structure import Structure

CLASSES = {"train": 5, "validation": 4, "test": 4}
EACH = 10  # images a class
SIZE = 16
COLOURS = np.array(
    [[230, 30, 30], [30, 200, 40], [40, 60, 230], [220, 210, 40], [200, 60, 200], [40, 200, 200]]
)

COLOURED = {"blue": 2, "green": 1, "red": 0}

# Small enough to take milliseconds a step.
SMALL = (
    *("--data", "fc100", "--output", "run", "--ways", "3", "--shots", "2", "--queries", "2"),
    *("--batch", "2", "--filters", "4", "--validation-tasks", "3", "--validate-every", "2"),
)


def small(*options: str, of: tuple[str, ...] = SMALL) -> tuple[str, ...]:
    """The small settings, of which options may replace some."""
    pairs = zip(of[::2], of[1::2], strict=True)
    return (*(word for pair in pairs if pair[0] not in options for word in pair), *options)


def blob(colour: int, random: np.random.Generator) -> np.ndarray[Any, Any]:
    """A noisy picture of one colour."""
    noise = random.normal(0, 25, size=(SIZE, SIZE, 3))
    return (COLOURS[colour % len(COLOURS)] + noise).clip(0, 255).astype(np.uint8)


def put_images(root: Path) -> None:
    """The three files of FC100, with few classes of small images."""
    random, first = np.random.default_rng(0), 0
    (root / "fc100").mkdir(parents=True)
    for split, classes in CLASSES.items():
        labels = np.repeat(np.arange(classes), EACH)
        images = np.stack([blob(first + label, random) for label in labels])
        names = np.array([f"c{first + c}" for c in range(classes)])
        np.savez(root / "fc100" / f"{split}.npz", images=images, labels=labels, classes=names)
        first += classes


class Shown(NamedTuple):
    """How a command ended, and what it showed."""

    code: int
    out: str
    err: str


@functools.cache
def built() -> Any:
    """The whole command: to build it takes longer than most of what it is told to do here."""
    return typer.main.get_command(build())


class Command:
    """`bilevel few-shot` in this process, in a folder of its own."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.folder, self._monkeypatch, self._capsys = folder, monkeypatch, capsys
        put_images(folder / "data")
        tiny = dataclasses.replace(
            module.fc100, classes=CLASSES, shape=(SIZE, SIZE, 3), fewest_a_class=EACH
        )
        monkeypatch.setattr(module, "fc100", tiny)
        monkeypatch.setattr("bilevel.cli.main.build", built)
        monkeypatch.setenv("BILEVEL_DATA", str(folder / "data"))
        monkeypatch.setenv("COLUMNS", "120")
        monkeypatch.chdir(folder)

    def __call__(self, *arguments: str) -> Shown:
        self._monkeypatch.setattr(sys, "argv", ["bilevel", "few-shot", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return Shown(int(ended.value.code or 0), *self._capsys.readouterr())

    def good(self, *arguments: str) -> Shown:
        shown = self(*arguments)
        assert shown.code == 0, shown.err
        return shown

    def train(self, *options: str) -> Shown:
        """Train with the small settings, of which options may replace some."""
        return self.good("train", *small(*options))

    def with_pictures(self) -> Command:
        """Support and query pictures of three colours, and a model to adapt."""
        save_pictures(self.folder / "support", COLOURED, each=2, seed=1)
        save_pictures(self.folder / "query", COLOURED, each=3, seed=2)
        untrained(self.folder / "model.pt", inner_steps=40, inner_lr=0.3)
        return self

    def history(self, run: str = "run") -> list[dict[str, Any]]:
        """The lines, without what no two runs have in common."""
        file = self.folder / run / "history.jsonl"
        lines = map(json.loads, file.read_text().splitlines() if file.exists() else ())
        return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]

    def kept(self, run: str = "run") -> dict[str, Any]:
        """The last checkpoint."""
        files = sorted((self.folder / run / "checkpoint").iterdir())
        return self.content(str(files[-1].relative_to(self.folder)))

    def json(self, file: str) -> Any:
        return json.loads((self.folder / file).read_text())

    def content(self, file: str = "run/last.pt") -> dict[str, Any]:
        content = torch.load(self.folder / file, weights_only=True)
        assert isinstance(content, dict)
        return content


def save_pictures(folder: Path, colours: dict[str, int], each: int, seed: int) -> None:
    """FOLDER/NAME/0.png, ... of the colour with the number that goes with the name."""
    random = np.random.default_rng(seed)
    for name, colour in colours.items():
        (folder / name).mkdir(parents=True)
        for i in range(each):
            Image.fromarray(blob(colour, random)).save(folder / name / f"{i}.png")


def untrained(
    file: Path,
    algorithm: str = "itd-bio",
    *,
    image_shape: tuple[int, int, int] = (3, SIZE, SIZE),
    filters: int = 8,
    ways: int = 3,
    **options: float,
) -> Checkpoint:
    """Write the checkpoint of a model before its first step."""
    settings = Settings(
        data="fc100",
        image_shape=image_shape,
        network="four-blocks",
        filters=filters,
        algorithm=algorithm,
        options=find(algorithm).options(options),
        ways=ways,
        shots=2,
        queries=2,
        batch=2,
        seed=0,
        validate_every=2,
        validation_tasks=3,
    )
    x0 = settings.formulate(Shape(ways, 2, 2), heads=1).x0
    model = Checkpoint(settings, 0, Structure("x", x0).flatten(x0))
    save(file, model)
    return model


def adapt(few_shot: Command, *options: str) -> Shown:
    folders = ("--support", "support", "--query", "query")
    return few_shot("adapt", "model.pt", *small(*options, of=folders))


def adapted(few_shot: Command, *options: str) -> Shown:
    shown = adapt(few_shot, "--output", "labels", *options)
    assert shown.code == 0, shown.err
    return shown


def table(few_shot: Command) -> list[dict[str, str]]:
    """labels.csv."""
    with (few_shot.folder / "labels/labels.csv").open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))
