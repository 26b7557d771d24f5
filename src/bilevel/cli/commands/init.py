"""`bilevel init`: a small program to start from."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bilevel.cli.options import optional
from bilevel.errors import UserError

TEMPLATES = Path(__file__).parents[1] / "templates"
_EPILOG = """
**Examples**

`bilevel init cleaning`, then `python cleaning.py`

`bilevel init comparison -o mine.toml`, then `bilevel run mine.toml` and `bilevel report out/mine`
"""


class Kind(StrEnum):
    """What the program is about."""

    CLEANING = "cleaning"
    PENALTIES = "penalties"
    NETWORK = "network"
    COMPARISON = "comparison"


_NEXT = {
    ".py": "run it: python {file}",
    ".toml": "run it: bilevel run {file}; then plot it: bilevel report out/comparison",
}
_OUTPUT = "The file to write. \\[default: KIND.py, or comparison.toml]"


def register(app: typer.Typer) -> None:
    app.command(epilog=_EPILOG)(init)


def init(
    kind: Annotated[Kind, typer.Argument(help="The kind of program.", show_default=False)],
    output: Annotated[Path | None, optional(_OUTPUT, "FILE", "--output", "-o")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Write a small commented program that runs as it is, for you to adapt.

    - **cleaning**: a table with doubtful labels;

    - **penalties**: one penalty for each feature of a classifier;

    - **network**: a network trained on noisy rows, with weights from a second network;

    - **comparison**: a comparison of methods, as a TOML file for `bilevel run`; with
    `-o comparison.py`, a program for a problem of your own.
    """
    kinds = {file.suffixes[0]: file for file in sorted(TEMPLATES.glob(f"{kind}.*"), reverse=True)}
    suffix = output.suffix if output is not None and output.suffix in kinds else next(iter(kinds))
    source = kinds[suffix]
    file = output or Path(f"{kind}{suffix}")
    if file.exists() and not force:
        raise UserError(f"{file} exists already: name another file with -o, or give --force")
    file.write_text(source.read_text("utf-8"), encoding="utf-8")
    typer.echo(f"written: {file}\n{_NEXT[suffix].format(file=file)}")
