"""`bilevel predict`: label new rows by a model that `bilevel clean` wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bilevel.cli.options import (
    Decimal,
    Encoding,
    Separator,
    Sheet,
    TableName,
    argument,
    must_exist,
    optional,
)
from bilevel.durable.regular import check_given

_MODEL = "The model.npz that `bilevel clean` wrote."
_TABLE = "A table with the columns that the model was trained on."
_OUTPUT = "The file to write; its suffix selects the format. By default predicted.csv."

_EPILOG = """
**Examples**

`bilevel predict cleaned/model.npz new.csv`

`bilevel predict cleaned/model.npz new.xlsx -o labelled.xlsx --force`
"""


def register(app: typer.Typer) -> None:
    app.command(epilog=_EPILOG)(predict)


def predict(
    model: Annotated[Path, argument(_MODEL, "MODEL")],
    table: Annotated[Path, argument(_TABLE, "TABLE")],
    output: Annotated[Path, optional(_OUTPUT, "FILE", "--output", "-o")] = Path("predicted.csv"),
    separator: Separator = "",
    decimal: Decimal = "",
    encoding: Encoding = "",
    sheet: Sheet = None,
    table_name: TableName = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Label new rows: adds the predicted label and its probability to your table."""
    must_exist(model, "name the model.npz that `bilevel clean` wrote")
    check_given(table)
    from bilevel.apps.cleaning.given import Told
    from bilevel.apps.cleaning.job import write_predictions

    told = Told.of(separator, decimal, encoding, sheet, table_name)
    rows = write_predictions(model, table, output, force, told)
    typer.echo(f"{rows:,} {'row' if rows == 1 else 'rows'} labelled: {output}")
