"""A bar for the runs of an experiment."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

_PAUSE = 0.2  # seconds between two updates: single-sample methods make thousands of steps


class RunsBar:
    """Shows which run goes on, how many are done and how long it will take.

    Use it as a context manager; it is a `bilevel.experiments.runner.Notify`, and shows itself at
    the first call, so that an error before that stands alone.
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
