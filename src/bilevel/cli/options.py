"""Options that several commands have, and the kinds of options that they have in common."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from bilevel.errors import UserError


def optional(help: str, metavar: str, *names: str, **limits: Any) -> Any:
    """An option whose default is none, or stands in its help."""
    return typer.Option(*names, help=help, metavar=metavar, show_default=False, **limits)


def argument(help: str, metavar: str) -> Any:
    """An argument that must be given."""
    return typer.Argument(help=help, metavar=metavar, show_default=False)


def folder(help: str) -> Any:
    """The folder for a command's results."""
    return optional(help, "FOLDER", "--output", "-o")


def must_exist(file: Path, remedy: str = "check its name") -> None:
    """Raise if there is no such file: at once, before what is slow to import."""
    if not file.exists():
        raise UserError(f"there is no file {file}: {remedy}")


def print_json(found: object) -> None:
    """A result for programs, on stdout."""
    typer.echo(json.dumps(found, indent=2, ensure_ascii=False, default=str))


Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for programs.")]
MOST_SEEDS = 10_000  # of a run: each has a folder
Seeds = Annotated[int | None, optional("Run seeds 0 to N − 1.", "N", min=1, max=MOST_SEEDS)]
Budget = Annotated[float | None, optional("Seconds for each run.", "SECONDS")]
NewFolder = Annotated[
    Path, typer.Option("--output", "-o", help="A new folder for the results.", metavar="FOLDER")
]
Force = Annotated[bool, typer.Option("--force", help="Write into a folder that is not empty.")]
