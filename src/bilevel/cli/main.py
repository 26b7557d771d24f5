"""The `bilevel` command."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.text import Text

import bilevel
from bilevel.cli import commands
from bilevel.discovery import load_modules
from bilevel.errors import UserError, short

_USAGE = 2
_STDOUT = 1
_MOST = 2000  # characters of a message


def build() -> typer.Typer:
    """The whole command, from the files of this folder."""
    app = typer.Typer(
        name="bilevel",
        help="Bilevel optimisation: find wrong labels, tune many penalties, rerun the paper.",
        no_args_is_help=True,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for module in load_modules(commands):
        module.register(app)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"bilevel {bilevel.__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command; what the user can mend is a message and exit code 2."""
    try:
        try:
            build()()
        finally:
            if sys.stdout is not None:  # which it is when it was closed
                sys.stdout.flush()  # a disk that is full says so here
    except UserError as error:
        _refuse(str(error))
    except MemoryError as error:
        _refuse(f"there is not enough memory: {error or 'ask for less'}")
    except OSError as error:
        _refuse(f"cannot read or write: {error}")
    except RuntimeError as error:
        if "allocate memory" not in str(error):  # torch's way to say MemoryError
            raise
        _refuse("there is not enough memory: ask for less")


def _refuse(reason: str) -> NoReturn:
    message = Text.assemble(("error: ", "bold red"), short(reason, _MOST))  # [x] is no markup
    with suppress(OSError):  # nobody may be there to read it
        Console(stderr=True).print(message, soft_wrap=True)
    try:
        sys.stdout.flush()
    except (AttributeError, OSError):  # Python would try once more at its end, with a stack trace
        os.dup2(os.open(os.devnull, os.O_WRONLY), _STDOUT)
    sys.exit(_USAGE)


if __name__ == "__main__":
    main()
