"""The `bilevel` command."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import suppress
from typing import Annotated, NoReturn

import typer

import bilevel
from bilevel.cli import commands
from bilevel.cli.usage import Commands, WrongWordsError, sentence
from bilevel.discovery import load_modules
from bilevel.errors import UserError, quoted, short

_USAGE = 2
_WIDE = 112  # columns of a terminal that fit a task and its description
_STDOUT = 1
_MOST = 2000  # characters of a message
_WORD = 4096  # of an argument: no path is longer
QUIET = "BILEVEL_QUIET"  # an environment variable, so that child processes are quiet, too
# The most common tasks, in the usual order.
_TASKS = {
    "clean orders.csv --label category -o cleaned": "find the wrong labels in a table",
    "review cleaned": "check the flagged rows in the browser",
    "predict cleaned/model.npz new.csv": "label new rows with the trained model",
    "init cleaning": "write a program to start from; also: penalties, network",
    "few-shot train --data fc100": "learn to recognise classes from a few pictures",
    "run mine.toml": "compare methods; then: bilevel report out/mine",
    "bench ijcnn1": "time methods on a published benchmark problem",
    "reproduce figure-5": "reproduce a figure of the paper, with verdicts",
    "doctor": "check the installation",
}


def build() -> typer.Typer:
    """The whole command, from the files of this folder."""
    app = typer.Typer(
        name="bilevel",
        cls=Commands,
        help="Bilevel optimisation: find wrong labels, tune many penalties, reproduce the paper.",
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_options)
    for module in load_modules(commands):
        module.register(app)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"bilevel {bilevel.__version__}")
        raise typer.Exit


def _overview() -> str:
    """The most common tasks, in ten lines; on a narrow terminal, in twice as many."""
    wide = shutil.get_terminal_size().columns >= _WIDE
    pattern = "  bilevel {:<46} {}" if wide else "  bilevel {}\n      {}"
    tasks = [pattern.format(*task) for task in _TASKS.items()]
    return "\n".join([*tasks, "All commands: bilevel --help. For one: bilevel clean --help."])


def _options(
    context: typer.Context,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Show no progress bars and no notes.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    if quiet:
        os.environ[QUIET] = "1"
    if context.invoked_subcommand is None:
        typer.echo(_overview())


def _hoisted(words: list[str]) -> list[str]:
    """Move --quiet to the front: it may also come after the command."""
    quiet = [word for word in words if word in ("--quiet", "-q")]
    return quiet[:1] + [word for word in words if word not in quiet]


def main() -> None:
    """Run the command; an error that the user can fix is a message and exit code 2."""
    try:
        try:
            _check_words(sys.argv[1:])
            sys.argv[1:] = _hoisted(sys.argv[1:])
            code = build()(prog_name="bilevel", standalone_mode=False)
        finally:
            if sys.stdout is not None:  # None if it was closed
                sys.stdout.flush()  # a full disk raises here
    except UserError as error:
        _refuse(str(error))
    except WrongWordsError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # which has shown the help
            error.show()
            sys.exit(_USAGE)
        _refuse(sentence(error))
    except ImportError as error:
        if "pip install" not in str(error):  # which our own errors on missing packages say
            raise
        _refuse(str(error))
    except MemoryError as error:
        _refuse(f"there is not enough memory: {error or 'ask for less'}")
    except OSError as error:
        _refuse(f"cannot read or write: {error}")
    except RuntimeError as error:
        if "allocate memory" not in str(error):  # torch's MemoryError
            raise
        _refuse("there is not enough memory: ask for less")
    else:
        sys.exit(code)


def _check_words(words: list[str]) -> None:
    """Refuse a word that is too long: the parser's messages would repeat it."""
    for word in words:
        if len(word) > _WORD:
            raise UserError(
                f"{quoted(word)} has {len(word):,} characters, more than any option or path"
            )


def _refuse(reason: str) -> NoReturn:
    from rich.console import Console
    from rich.text import Text

    message = Text.assemble(("error: ", "bold red"), short(reason, _MOST))  # not markup
    with suppress(OSError):  # nobody may be there to read it
        Console(stderr=True).print(message, soft_wrap=True)
    try:
        sys.stdout.flush()
    except (AttributeError, OSError):  # or Python would try again at exit, with a stack trace
        os.dup2(os.open(os.devnull, os.O_WRONLY), _STDOUT)
    sys.exit(_USAGE)


if __name__ == "__main__":
    main()
