"""The folder of a few-shot training.

    FOLDER/settings.json   what was asked for, and with which versions
           history.jsonl   a line for each validation
           best.pt         the model with the highest validation accuracy
           last.pt         the last model, and where to go on
           before.pt       the one before it, in case that last.pt gets damaged
           report.html     the learning curve

Files other than the history appear as a whole or not at all. A line of the history counts if
`last.pt` is not older than it.
"""

from __future__ import annotations

import json
import math
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bilevel.apps.few_shot import checkpoint
from bilevel.apps.few_shot.checkpoint import Best, Checkpoint, Point
from bilevel.apps.few_shot.settings import Settings
from bilevel.durable.about import about
from bilevel.durable.files import remove_parts, replacing, try_to_write, write_text
from bilevel.durable.lock import locked
from bilevel.errors import UserError


@dataclass(frozen=True)
class Limits:
    """When a training ends: after so many steps, or when these took so many seconds."""

    steps: int
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.seconds is not None and not 0 < self.seconds < math.inf:
            raise UserError(f"--seconds must be a positive number, got {self.seconds}")

    def reached(self, point: Point | None) -> bool:
        if point is None:
            return False
        late = self.seconds is not None and point.seconds >= self.seconds
        return late or point.state.step >= self.steps


@dataclass(frozen=True)
class Line:
    """A validation.

    Args:
        step: after so many outer steps.
        seconds: that these took, without any evaluation.
        loss: the mean of f over training batches since the line before; None if none was looked at.
        batch_loss: f on the last of these.
        train_accuracy, train_interval: on tasks of the training classes: mean, and half the width
            of its 95 % interval.
        validation_accuracy, validation_interval: the same of the validation classes.
    """

    step: int
    seconds: float
    loss: float | None
    batch_loss: float | None
    train_accuracy: float
    train_interval: float
    validation_accuracy: float
    validation_interval: float


class RunFolder:
    """The files of a training."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def best(self) -> Path:
        return self.folder / "best.pt"

    @property
    def last(self) -> Path:
        return self.folder / "last.pt"

    @property
    def report(self) -> Path:
        return self.folder / "report.html"

    def check(self, settings: Settings) -> Point | None:
        """Where to go on; None is the start.

        Writes nothing that stays; but if `last.pt` is damaged, the one before it takes its place,
        with a warning.

        Raises:
            UserError: the folder cannot be written to, or holds something else, or a training
                with other settings.
        """
        with self.named_errors():
            if self.folder.exists() and not self.folder.is_dir():
                raise UserError(f"the output {self.folder} is a file: name a folder")
            try_to_write(self.folder)
            if not self.folder.is_dir() or not any(self.folder.iterdir()):
                return None
            self._check_same(settings)
            return self._load_last().point if self.last.exists() else None

    def open(self, settings: Settings, limits: Limits, point: Point | None, command: str) -> None:
        """Make the folder ready to go on from there."""
        with self.named_errors():
            self.folder.mkdir(parents=True, exist_ok=True)
            remove_parts(self.folder)
            stored = {"settings": settings.plain(), "limits": asdict(limits)}
            text = json.dumps({**stored, "about": about(command)}, indent=2)
            write_text(self.folder / "settings.json", text + "\n")
            kept = [line for line in self.history() if point and line.step <= point.validated]
            write_text(self._history, "".join(map(_json, kept)))

    def history(self) -> list[Line]:
        """The validations so far; a last line that a crash cut short is left out."""
        if not self._history.exists():
            return []
        *whole, _ = self._history.read_text(encoding="utf-8").split("\n")
        try:
            return [Line(**json.loads(line)) for line in whole]
        except (TypeError, ValueError) as error:
            raise UserError(f"{self._history} is damaged: {error}; delete the folder") from error

    def append(self, line: Line) -> None:
        with self.named_errors(), self._history.open("a", encoding="utf-8") as file:
            file.write(_json(line))

    def save_best(self, settings: Settings, point: Point, best: Best) -> None:
        found = (best.accuracy, best.interval)
        with self.named_errors():
            checkpoint.save(self.best, Checkpoint(settings, best.step, point.state.x, found))

    def save_last(self, settings: Settings, point: Point) -> None:
        """Write `last.pt`, and keep the one before it.

        Raises:
            OSError: it cannot be written; both stay as they are.
        """
        if self.last.exists():
            with replacing(self._before) as part:
                shutil.copyfile(self.last, part)
        state = point.state
        checkpoint.save(self.last, Checkpoint(settings, state.step, state.x, point=point))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder, and keep other processes out of it."""
        with self.named_errors():
            self.folder.mkdir(parents=True, exist_ok=True)
        with locked(self.folder):
            yield

    @contextmanager
    def named_errors(self) -> Iterator[None]:
        """Errors of the disk, with the folder's name."""
        try:
            yield
        except OSError as error:
            raise UserError(f"cannot write to {self.folder}: {error}") from error

    @property
    def _history(self) -> Path:
        return self.folder / "history.jsonl"

    @property
    def _before(self) -> Path:
        return self.folder / "before.pt"

    def _load_last(self) -> Checkpoint:
        try:
            return checkpoint.load(self.last)
        except UserError as error:
            if not self._before.exists():
                raise
            found = checkpoint.load(self._before)
            warnings.warn(f"{error}: the one before it is used", RuntimeWarning, stacklevel=2)
            self._before.replace(self.last)
            return found

    def _check_same(self, settings: Settings) -> None:
        file = self.folder / "settings.json"
        if not file.is_file():
            raise UserError(
                f"the folder {self.folder} is not empty, and holds no few-shot training: choose "
                "another with --output"
            )
        if different := settings.difference(_read_settings(file)):
            raise UserError(
                f"{self.folder} holds a training with other settings: {', '.join(different)}. "
                "Choose another folder with --output, or delete it."
            )


def _read_settings(file: Path) -> Settings:
    try:
        stored: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return Settings.read(stored["settings"])
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{file} is damaged, or not of a few-shot training: {error!r}. Choose another folder "
            "with --output."
        ) from error


def _json(line: Line) -> str:
    return json.dumps(asdict(line)) + "\n"
