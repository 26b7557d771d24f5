"""Ready-made callbacks for `minimize`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Self

from bilevel.runs.minimize import Progress


class Block(ABC):
    """A callback that is open inside a `with` block."""

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(error)

    @abstractmethod
    def open(self) -> None:
        """Get ready for the first step."""

    @abstractmethod
    def close(self, error: BaseException | None) -> None:
        """Release what is open; the error is what ended the block, None if nothing did."""


class ProgressBar(Block):
    """A bar with the outer value, the hypergradient's norm and the time that is left.

    Use it as a context manager, so that the terminal is left tidy whatever happens:

        with bilevel.callbacks.ProgressBar("cleaning") as bar:
            bilevel.minimize(problem, algorithm, steps=200, callbacks=[bar])

    Needs rich (`pip install "bilevel[cli]"`).
    """

    def __init__(self, title: str = "minimising", console: Any = None) -> None:
        try:
            # Only here: rich is an extra, and `minimize` works without it.
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar
        except ImportError as error:
            raise ImportError('the progress bar needs rich: pip install "bilevel[cli]"') from error
        self._bar = Bar(
            TextColumn(title),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
        )
        self._task = self._bar.add_task(title, total=None, note="")

    def open(self) -> None:
        self._bar.start()

    def close(self, error: BaseException | None) -> None:
        if error is None:  # a run that stopped early is complete
            done = self._bar.tasks[0].completed
            self._bar.update(self._task, total=done)
        self._bar.stop()

    def __call__(self, progress: Progress) -> None:
        record = progress.record
        value = "" if record.outer_value is None else f"f {record.outer_value:.4g}  "
        note = f"{value}|∇Φ| {record.hypergradient_norm:.2g}"
        self._bar.update(self._task, total=progress.steps, completed=record.step, note=note)
