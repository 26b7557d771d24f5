"""Curves in TensorBoard."""

from __future__ import annotations

from pathlib import Path

from bilevel.runs.trackers.tracker import Log, Settings, Values, extra


class TensorBoard(Log):
    """Event files in a folder; see them with `tensorboard --logdir FOLDER`.

    A run that continues from step k replaces what the folder holds from k on, so that steps after
    the last checkpoint do not appear twice.

    Args:
        folder: one for each run.

    Example:
        >>> import os, tempfile, bilevel
        >>> from bilevel.problem.examples import halves
        >>> from bilevel.trackers import TensorBoard, Tracker
        >>> folder = tempfile.mkdtemp()
        >>> with Tracker(TensorBoard(folder)) as tracker:
        ...     result = bilevel.minimize(halves(), steps=2, callbacks=[tracker])
        >>> len(os.listdir(folder))
        1
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._module = extra("torch.utils.tensorboard", "tensorboard")

    def begin(self, step: int, settings: Settings) -> None:
        # Its queue is written by a thread, which dies silently if the folder is not a folder.
        self._folder.mkdir(parents=True, exist_ok=True)
        self._writer = self._module.SummaryWriter(str(self._folder), purge_step=step)
        rows = "".join(f"| {name} | {value} |\n" for name, value in settings.items())
        self._text("settings", f"| setting | value |\n|---|---|\n{rows}", step)
        self._last = step

    def write(self, step: int, values: Values) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()  # before the step's checkpoint: a kill must leave no gap
        self._last = step

    def end(self, status: str, message: str) -> None:
        self._text("status", f"**{status}** {message}", self._last)
        self._writer.close()

    def _text(self, name: str, text: str, step: int) -> None:
        self._writer.add_text(name, text, step)
