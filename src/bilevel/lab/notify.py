"""How long work tells of its progress."""

from collections.abc import Callable

Notify = Callable[[str, float, int], None]  # what goes on, how many parts are done, of how many


def silent(what: str, done: float, total: int) -> None:
    """Tell nobody."""
