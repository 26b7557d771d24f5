"""How long-running work reports its progress."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable

Notify = Callable[[str, float, int], None]  # what is running, how many parts are done, of how many


def silent(what: str, done: float, total: int) -> None:
    """Report nothing."""


def line_in_terminal() -> Notify:
    """One line on stderr that is overwritten, if stderr is a terminal; cut where it would wrap."""
    began = time.monotonic()

    def tell(what: str, done: float, total: int) -> None:
        spent = time.monotonic() - began
        left = f", about {spent * (total - done) / done:.0f} s left" if 0 < done < total else ""
        end = "\n" if done == total else ""
        text = f"{done:g} of {total} runs, {spent:.0f} s{left}; {what}"
        room = shutil.get_terminal_size().columns - 1
        print(f"\r{text[:room]:<{room}}", end=end, file=sys.stderr, flush=True)

    is_wanted = sys.stderr.isatty() and not os.environ.get("BILEVEL_QUIET")
    return tell if is_wanted else silent
