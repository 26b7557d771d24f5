"""Bars for the making of files: one that adds up, and one at which the user stops."""

from __future__ import annotations


class Bar:
    total = 0

    def __init__(self) -> None:
        self.shown, self.closed = 0, False

    def update(self, amount: int) -> None:
        self.shown += amount

    def reset(self) -> None:
        self.shown = 0

    def close(self) -> None:
        self.closed = True


class InterruptedBar(Bar):
    """The user presses Ctrl-C while it moves."""

    def update(self, amount: int) -> None:
        raise KeyboardInterrupt
