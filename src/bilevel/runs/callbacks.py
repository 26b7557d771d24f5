"""Ready-made callbacks for `minimize`."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Self

from bilevel.discovery import import_extra
from bilevel.runs.minimize import Progress


class ProgressBar(AbstractContextManager["ProgressBar"]):
    """A progress bar with the outer value, the hypergradient's norm and the remaining time.

    Use it as a context manager, so that the terminal is left tidy whatever happens:

        with bilevel.callbacks.ProgressBar("cleaning") as bar:
            bilevel.minimize(problem, algorithm, steps=200, callbacks=[bar])

    Needs rich (`pip install "bilevel[cli]"`).

    Example:
        >>> import io, rich.console, bilevel
        >>> from bilevel.problem.examples import halves
        >>> nowhere = rich.console.Console(file=io.StringIO())  # leave it out to see the bar
        >>> with bilevel.callbacks.ProgressBar("halves", nowhere) as bar:
        ...     result = bilevel.minimize(halves(), steps=3, callbacks=[bar])
        >>> "3/3" in nowhere.file.getvalue()
        True
    """

    def __init__(self, title: str = "minimising", console: Any = None) -> None:
        rich = import_extra("rich.progress", "the progress bar needs rich", "cli")
        counts = rich.BarColumn(), rich.MofNCompleteColumn(), rich.TimeRemainingColumn()
        note = rich.TextColumn("{task.fields[note]}")
        self._bar = rich.Progress(rich.TextColumn(title), *counts, note, console=console)
        self._task = self._bar.add_task(title, total=None, note="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:  # a run that stopped early is complete
            done = self._bar.tasks[0].completed
            self._bar.update(self._task, total=done)
        self._bar.stop()

    def __call__(self, progress: Progress) -> None:
        record = progress.record
        value = "" if record.outer_value is None else f"f {record.outer_value:.4g}  "
        note = f"{value}|∇Φ| {record.hypergradient_norm:.2g}"
        self._bar.update(self._task, total=progress.steps, completed=record.step, note=note)
