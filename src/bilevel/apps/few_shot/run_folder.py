"""The folder of a few-shot training.

    FOLDER/settings.json   what was asked for, and with which versions
           history.jsonl   a line for each validation
           best.pt         the model with the highest validation accuracy
           last.pt         the last model
           report.html     the learning curve
           checkpoint/     where `minimize` goes on

Each file appears complete or not at all. A training resumes from the checkpoint alone; the other
files are written from it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from bilevel.apps.few_shot import checkpoint
from bilevel.apps.few_shot.checkpoint import Checkpoint
from bilevel.apps.few_shot.settings import Settings
from bilevel.durable import sealed
from bilevel.durable.about import about
from bilevel.durable.files import remove_parts, write_text
from bilevel.durable.folders import check_writable, named_errors
from bilevel.durable.store import Store
from bilevel.errors import UserError
from bilevel.runs.checkpoints.saved import Saved


@dataclass(frozen=True)
class Limits:
    """When a training ends: after this many steps, or when they took this many seconds."""

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
        step: the number of outer steps before it.
        seconds: the time that these took, without evaluation.
        loss: the mean of f over training batches since the previous line; None if not evaluated.
        batch_loss: f on the last of these.
        train_accuracy, train_interval: on tasks of the training classes: mean, and half the width
            of its 95 % interval.
        validation_accuracy, validation_interval: the same for the validation classes.
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
    """The inverse of `text_of`."""
    return [Line(**json.loads(line)) for line in text.splitlines()]


class RunFolder:
    """The files of a training."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.best, self.last = folder / "best.pt", folder / "last.pt"
        self.report, self.checkpoints = folder / "report.html", folder / "checkpoint"

    def check(self, settings: Settings) -> Saved | None:
        """The last checkpoint, to go on from; None if there is none. Nothing is left behind.

        Raises:
            UserError: the folder cannot be written to, or holds something else, such as a
                training with other settings.
        """
        check_writable(self.folder, "the output ")
        with self._named():
            kept = self._kept()
            if kept is None and self._holds_other_files():
                raise UserError(
                    f"the folder {self.folder} is not empty, and holds no few-shot training that "
                    "this version can go on with: choose another with --output"
                )
        if kept and (different := settings.difference(Settings.read(kept.memories[0]["settings"]))):
            raise UserError(
                f"{self.folder} holds a training with other settings: {', '.join(different)}. "
                "Choose another folder with --output, or delete it."
            )
        return kept

    def open(self, settings: Settings, limits: Limits, command: str) -> None:
        """Create the folder, and write into it what will be run."""
        with self._named():
            self.folder.mkdir(parents=True, exist_ok=True)
            remove_parts(self.folder)
            stored = {"settings": settings.plain(), "limits": asdict(limits)}
            text = json.dumps({**stored, "about": about(command)}, indent=2)
            write_text(self.folder / "settings.json", text + "\n")

    def write_history(self, lines: Sequence[Line]) -> None:
        with self._named():
            write_text(self.folder / "history.jsonl", text_of(lines))

    def save(self, file: Path, model: Checkpoint) -> None:
        with self._named():
            checkpoint.save(file, model)

    def _kept(self) -> Saved | None:
        # Read without a lock, so that all ranks of a group can; `minimize` takes it.
        store = Store(self.checkpoints)
        for file in reversed(store.files()):
            with suppress(sealed.DamagedError):
                return Saved.of(sealed.read(file))
        store.load()  # raises if there are checkpoints, and none is whole
        return None

    def _holds_other_files(self) -> bool:
        """Other files than those of a training that ended before its first checkpoint."""
        names = {path.name for path in self.folder.iterdir()} if self.folder.is_dir() else set()
        own = {"settings.json", self.checkpoints.name}
        return any(not name.startswith(".") for name in names - own)

    def _named(self) -> AbstractContextManager[None]:
        """Inside, an error of the disk names the folder."""
        return named_errors(self.folder, "make room there, or choose another folder with --output")
