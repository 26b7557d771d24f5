"""The folder of a few-shot training.

    FOLDER/settings.json   what was asked for, and with which versions
           history.jsonl   a line for each validation
           best.pt         the model with the highest validation accuracy
           last.pt         the last model
           report.html     the learning curve
           checkpoint/     where `minimize` goes on

Each file appears as a whole or not at all. What counts when a training goes on is the checkpoint;
the others are written from it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bilevel.apps.few_shot import checkpoint
from bilevel.apps.few_shot.checkpoint import Checkpoint
from bilevel.apps.few_shot.settings import Settings
from bilevel.durable import sealed
from bilevel.durable.about import about
from bilevel.durable.files import remove_parts, write_text
from bilevel.durable.folders import check_writable
from bilevel.durable.store import Store
from bilevel.errors import UserError
from bilevel.runs.checkpoints.saved import Saved


@dataclass(frozen=True)
class Limits:
    """When a training ends: after so many steps, or when these took so many seconds."""

    steps: int
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.seconds is not None and not 0 < self.seconds < math.inf:
            raise UserError(f"--seconds must be a positive number, got {self.seconds}")

    def reached(self, step: int, seconds: float) -> bool:
        return step >= self.steps or (self.seconds is not None and seconds >= self.seconds)


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


def text_of(lines: Sequence[Line]) -> str:
    """The history as history.jsonl has it."""
    return "".join(json.dumps(asdict(line)) + "\n" for line in lines)


def lines_of(text: str) -> list[Line]:
    """What `text_of` wrote."""
    return [Line(**json.loads(line)) for line in text.splitlines()]


@dataclass(frozen=True)
class Kept:
    """Where a training in a folder stands: its last checkpoint.

    Args:
        step, seconds: of the last step.
        memory: of the training's `Validation`.
    """

    step: int
    seconds: float
    memory: dict[str, Any]


class RunFolder:
    """The files of a training."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.best, self.last = folder / "best.pt", folder / "last.pt"
        self.report, self.checkpoints = folder / "report.html", folder / "checkpoint"

    def check(self, settings: Settings) -> Kept | None:
        """Where to go on; None means from the start. It leaves nothing behind.

        Raises:
            UserError: the folder cannot be written to, or holds something else, or a training
                with other settings.
        """
        check_writable(self.folder, "the output ")
        with self._named_errors():
            kept = self._kept()
            if kept is None and self._holds_other_files():
                raise UserError(
                    f"the folder {self.folder} is not empty, and holds no few-shot training that "
                    "this version can go on with: choose another with --output"
                )
        if kept and (different := settings.difference(Settings.read(kept.memory["settings"]))):
            raise UserError(
                f"{self.folder} holds a training with other settings: {', '.join(different)}. "
                "Choose another folder with --output, or delete it."
            )
        return kept

    def open(self, settings: Settings, limits: Limits, command: str) -> None:
        """Make the folder, and say in it what will be run."""
        with self._named_errors():
            self.folder.mkdir(parents=True, exist_ok=True)
            remove_parts(self.folder)
            stored = {"settings": settings.plain(), "limits": asdict(limits)}
            text = json.dumps({**stored, "about": about(command)}, indent=2)
            write_text(self.folder / "settings.json", text + "\n")

    def write_history(self, lines: Sequence[Line]) -> None:
        with self._named_errors():
            write_text(self.folder / "history.jsonl", text_of(lines))

    def save(self, file: Path, model: Checkpoint) -> None:
        with self._named_errors():
            checkpoint.save(file, model)

    def _kept(self) -> Kept | None:
        # Read without a lock, so that all ranks of a group can; `minimize` takes it.
        store = Store(self.checkpoints)
        for file in reversed(store.files()):
            with suppress(sealed.DamagedError):
                saved = Saved.of(sealed.read(file))
                return Kept(saved.past.state.step, saved.past.seconds, *saved.memories)
        store.load()  # raises if there are checkpoints, and none is whole
        return None

    def _holds_other_files(self) -> bool:
        """Besides those of a training that ended before its first checkpoint."""
        names = {path.name for path in self.folder.iterdir()} if self.folder.is_dir() else set()
        own = {"settings.json", self.checkpoints.name}
        return any(not name.startswith(".") for name in names - own)

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Errors of the disk, with the folder's name."""
        try:
            yield
        except OSError as error:
            raise UserError(f"cannot write to {self.folder}: {error}") from error
