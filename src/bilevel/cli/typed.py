"""What the user typed."""

from __future__ import annotations

import shlex
import sys


def typed() -> str:
    """The command line, to be stored with what it made; no path of this machine's program."""
    return shlex.join(["bilevel", *sys.argv[1:]])
