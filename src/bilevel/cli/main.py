"""The `bilevel` command."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

import bilevel
from bilevel.cli import commands
from bilevel.discovery import load_modules
from bilevel.errors import UserError

_USAGE = 2


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
    """Run the command; a mistake of the user's is a message and exit code 2."""
    try:
        build()()
    except UserError as error:
        message = Text.assemble(("error: ", "bold red"), str(error))  # as it is: [x] is no markup
        Console(stderr=True).print(message, soft_wrap=True)
        sys.exit(_USAGE)


if __name__ == "__main__":
    main()
