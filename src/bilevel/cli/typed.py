"""What the user typed, and what the user is told when a signal ends it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer


def typed() -> str:
    """The command line, to be stored with what it made; no path of this machine's program."""
    return shlex.join(["bilevel", *sys.argv[1:]])


@contextmanager
def told_if_interrupted(text: str) -> Iterator[None]:
    """Inside, a signal that ends the work is a sentence, and the exit code that a shell has."""
    from bilevel.durable.interruption import Interrupted

    try:
        yield
    except Interrupted as stopped:
        typer.echo(f"interrupted{text}", err=True)
        raise typer.Exit(stopped.exit_code) from stopped
