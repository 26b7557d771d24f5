"""`bilevel review`: decide about the suspicious rows, in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bilevel.cli.options import argument

_FOLDER = "The folder that `bilevel clean` wrote."

_EPILOG = """
**Examples**

`bilevel review cleaned`

`bilevel review cleaned --no-browser` only prints the path of the page.
"""


def register(app: typer.Typer) -> None:
    app.command(epilog=_EPILOG)(review)


def review(
    folder: Annotated[Path, argument(_FOLDER, "FOLDER")],
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
) -> None:
    """Check the suspicious rows in the browser, one by one or as a table.

    The page works offline and keeps your decisions in the browser. Save them there as
    decisions.csv, and pass that file to `bilevel clean ... --trusted decisions.csv`.
    """
    import webbrowser

    from bilevel.errors import UserError

    page = folder / "review.html"
    if not page.is_file():
        raise UserError(f"there is no {page}: name the folder that `bilevel clean` wrote")
    typer.echo(f"review: {page}")
    if browser:
        webbrowser.open(page.absolute().as_uri())
