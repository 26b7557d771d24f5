"""Bars for long work: the runs of an experiment, a training, tasks that are counted."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from bilevel.apps.few_shot.run_folder import Line

_PAUSE = 0.2  # seconds between two updates: single-sample methods make thousands of steps


class RunsBar:
    """Shows which run goes on, how many are done and how long it will take.

    Use it as a context manager; it is a `bilevel.lab.experiments.runner.Notify`, and shows
    itself at the first call, so that an error before that stands alone.
    """

    def __init__(self, unit: str = "runs", console: Console | None = None) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn(f"{{task.completed:.1f}} of {{task.total}} {unit}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console or Console(stderr=True),
        )
        self._task = self._bar.add_task("", total=None)
        self._next = 0.0

    def __enter__(self) -> RunsBar:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def __call__(self, what: str, done: float, total: int) -> None:
        now = time.monotonic()
        if now >= self._next or done == total:
            self._bar.start()
            self._bar.update(self._task, description=what, completed=done, total=total)
            self._next = now + _PAUSE


class _Bar:
    """One line of rich's, shown while the block runs."""

    def __init__(self, title: str, total: int, done: int = 0) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=Console(stderr=True),
        )
        self._task: TaskID = self._bar.add_task(title, total=total, completed=done, note="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()


class TasksBar(_Bar):
    """How many of the tasks, or pictures, are done."""

    def __call__(self, done: int) -> None:
        self._bar.update(self._task, completed=done)


class TrainingBar(_Bar):
    """The step, the loss of the last batch that was looked at, and the last validation."""

    def __init__(self, title: str, total: int, done: int = 0) -> None:
        super().__init__(title, total, done)
        self._loss = self._accuracy = ""

    def stepped(self, step: int, loss: float | None) -> None:
        self._loss = self._loss if loss is None else f"loss {loss:.3f}"
        self._show(step)

    def measuring(self, split: str, done: int, tasks: int) -> None:
        self._bar.update(self._task, note=f"{split} tasks {done}/{tasks}")

    def validated(self, line: Line) -> None:
        self._accuracy = f"validation {line.validation_accuracy:.1%}"
        self._show(line.step)

    def _show(self, step: int) -> None:
        note = "  ".join(filter(None, (self._loss, self._accuracy)))
        self._bar.update(self._task, completed=step, note=note)
