"""Bars for long work: the runs of an experiment, a training, counted tasks, downloads."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from bilevel.apps.few_shot.run_folder import Line
    from bilevel.datasets.origin import BarFor

_PAUSE = 0.2  # seconds between two updates: single-sample methods make thousands of steps
_NAME = "{task.description}"


def console() -> Console:
    """The console for bars and notes: stderr, or nothing with --quiet."""
    return Console(stderr=True, quiet=bool(os.environ.get("BILEVEL_QUIET")))


class _Bar:
    """A progress line by rich on stderr, from the first update to the end of the block."""

    def __init__(self, title: str, count: ProgressColumn, total: int | None, done: int = 0) -> None:
        times = TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()
        note = TextColumn("{task.fields[note]}")
        columns = TextColumn(_NAME), BarColumn(bar_width=24), count, *times, note
        self._bar = Progress(*columns, console=console())
        self._task = self._bar.add_task(title, total=total, completed=done, note="")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def _show(self, **changes: Any) -> None:
        self._bar.start()
        self._bar.update(self._task, **changes)


class RunsBar(_Bar):
    """Shows the current run, how many are done and how long the rest will take.

    It is a `bilevel.lab.notify.Notify`, and appears at the first call, so that an earlier error
    stands alone.
    """

    def __init__(self, unit: str = "runs") -> None:
        super().__init__("", TextColumn(f"{{task.completed:.3g}} of {{task.total}} {unit}"), None)
        self._next = 0.0

    def __call__(self, what: str, done: float, total: int) -> None:
        now = time.monotonic()
        if now >= self._next or done == total:
            self._show(description=what, completed=done, total=total)
            self._next = now + _PAUSE


class _CountingBar(_Bar):
    """Appears at once: the first part of the work may take long."""

    def __init__(self, title: str, total: int, done: int = 0) -> None:
        super().__init__(title, MofNCompleteColumn(), total, done)

    def __enter__(self) -> Self:
        self._show()
        return self


class TasksBar(_CountingBar):
    """How many tasks or pictures are done."""

    def __call__(self, done: int) -> None:
        self._show(completed=done)


class TrainingBar(_CountingBar):
    """The step, the last batch loss that was evaluated, and the last validation."""

    _loss = _accuracy = ""

    def stepped(self, step: int, loss: float | None) -> None:
        self._loss = self._loss if loss is None else f"loss {loss:.3f}"
        self._show_step(step)

    def measuring(self, split: str, done: int, tasks: int) -> None:
        self._show(note=f"{split} tasks {done}/{tasks}")

    def validated(self, line: Line) -> None:
        self._accuracy = f"validation {line.validation_accuracy:.1%}"
        self._show_step(line.step)

    def _show_step(self, step: int) -> None:
        note = "  ".join(filter(None, (self._loss, self._accuracy)))
        self._show(completed=step, note=note)


class DownloadBar:
    """One file's line in rich's progress display, as pooch drives it."""

    def __init__(self, progress: Progress, file: str) -> None:
        self._progress = progress
        self._task = progress.add_task(file, total=None)

    @property
    def total(self) -> int:
        return int(self._progress.tasks[self._task].total or 0)

    @total.setter
    def total(self, size: int) -> None:
        self._progress.update(self._task, total=size or None)

    def update(self, amount: int) -> None:
        self._progress.advance(self._task, amount)

    def reset(self) -> None:
        self._progress.update(self._task, completed=0)

    def close(self) -> None:
        self._progress.stop_task(self._task)


@contextmanager
def downloads() -> Iterator[BarFor]:
    """Inside the block, a function that makes a bar for each file."""
    import pooch

    pooch.get_logger().setLevel("WARNING")  # the bar shows the same
    columns = TextColumn(_NAME), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console(), transient=True) as progress:
        yield lambda file: DownloadBar(progress, file)
