"""What several commands share: options, kinds of options, and what they say when interrupted."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from bilevel.errors import UserError


def optional(help: str, metavar: str, *names: str, **limits: Any) -> Any:
    """An option whose default is None, or is stated in its help."""
    return typer.Option(*names, help=help, metavar=metavar, show_default=False, **limits)


def argument(help: str, metavar: str) -> Any:
    """A required argument."""
    return typer.Argument(help=help, metavar=metavar, show_default=False)


def folder(help: str) -> Any:
    """The folder for a command's results."""
    return optional(help, "FOLDER", "--output", "-o")


def must_exist(file: Path, remedy: str = "check its name") -> None:
    """Raise if there is no such file, before slow imports."""
    if not file.exists():
        raise UserError(f"there is no file {file}: {remedy}")


def print_json(found: object) -> None:
    """Print a result for programs, on stdout."""
    typer.echo(json.dumps(found, indent=2, ensure_ascii=False, default=str))


def typed() -> str:
    """The command line, to be stored with its results; without the path of the program."""
    return shlex.join(["bilevel", *sys.argv[1:]])


@contextmanager
def told_if_interrupted(text: str) -> Iterator[None]:
    """Inside the block, a signal ends the work with a sentence and the exit code of shells."""
    from bilevel.durable.interruption import Interrupted

    try:
        yield
    except Interrupted as stopped:
        typer.echo(f"interrupted{text}", err=True)
        raise typer.Exit(stopped.exit_code) from stopped


Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
MOST_SEEDS = 10_000  # of a run: each has a folder
Seeds = Annotated[int | None, optional("Run seeds 0 to N − 1.", "N", min=1, max=MOST_SEEDS)]
Budget = Annotated[float | None, optional("Time limit of each run.", "SECONDS")]
NewFolder = Annotated[
    Path, typer.Option("--output", "-o", help="A new folder for the results.", metavar="FOLDER")
]
Force = Annotated[bool, typer.Option("--force", help="Write into a folder that is not empty.")]
Separator = Annotated[
    str, optional("Column separator of a text file. Detected by default.", "TEXT")
]
Decimal = Annotated[
    str, optional("Decimal mark of a text file, '.' or ','. Detected by default.", "TEXT")
]
Encoding = Annotated[
    str, optional("Encoding of a text file, such as cp1252. Detected by default.", "NAME")
]
Sheet = Annotated[str | None, optional("Sheet of a workbook. By default the first.", "NAME")]
TableName = Annotated[str | None, optional("Table of a database.", "NAME", "--table")]
