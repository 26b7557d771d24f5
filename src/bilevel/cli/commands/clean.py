"""`bilevel clean`: find the wrong labels in a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bilevel.arguments import LARGEST
from bilevel.cli.options import (
    Decimal,
    Encoding,
    Force,
    Separator,
    Sheet,
    TableName,
    optional,
    told_if_interrupted,
    typed,
)
from bilevel.cli.usage import split

_EPILOG = """
**Examples**

`bilevel clean orders.csv --label category --output cleaned`

`bilevel clean orders.xlsx --label category --trusted checked.xlsx --ignore invoice --output
cleaned`

`bilevel clean orders.csv --label category --explain-columns`

`bilevel clean crowd.csv --annotators ada,bob,eve --output cleaned`
"""
_TABLE = "A .csv, .tsv, .csv.gz, .zip, .xlsx, .parquet, .feather, .json, .jsonl or .db (SQLite)."
_OUTPUT = "A new folder for the results."
_TRUSTED = (
    "Rows whose labels are known to be right: a file of the same form, the decisions of a review, "
    "or a yes/no column of the table. 20 rows help a lot, 100 more so."
)
_LABEL = "Column that holds the labels. Optional with --annotators."
_ANNOTATORS = (
    "Columns with the labels that several people gave, separated by commas. Each person's votes "
    "are weighted by how reliable they turn out to be."
)
_TASK = "Kind of label: classification (classes), regression (numbers), or auto (detect it)."
_TEXT = "A column to read as free text. Repeatable."
_CATEGORY = "A numeric column that holds categories, such as codes. Repeatable."
_IGNORE = "A column to leave out, such as one derived from the label. Repeatable."
_EXPLAIN = "Show how each column would be interpreted, and exit."
_SEED = "Random seed: the same seed gives the same result."
_FORMAT = "Format of the output table: csv, tsv, xlsx, parquet, ... By default that of the input."


def register(app: typer.Typer) -> None:
    app.command(epilog=_EPILOG)(clean)


def clean(
    table: Annotated[Path, typer.Argument(help=_TABLE, show_default=False)],
    label: Annotated[str, optional(_LABEL, "COLUMN")] = "",
    output: Annotated[Path | None, optional(_OUTPUT, "FOLDER", "--output", "-o")] = None,
    trusted: Annotated[str | None, optional(_TRUSTED, "FILE|COLUMN")] = None,
    annotators: Annotated[list[str] | None, optional(_ANNOTATORS, "COLUMN,...")] = None,
    task: Annotated[str, typer.Option(help=_TASK)] = "auto",
    text: Annotated[list[str] | None, optional(_TEXT, "COLUMN")] = None,
    category: Annotated[list[str] | None, optional(_CATEGORY, "COLUMN")] = None,
    ignore: Annotated[list[str] | None, optional(_IGNORE, "COLUMN")] = None,
    explain_columns: Annotated[bool, typer.Option("--explain-columns", help=_EXPLAIN)] = False,
    separator: Separator = "",
    decimal: Decimal = "",
    encoding: Encoding = "",
    sheet: Sheet = None,
    table_name: TableName = None,
    output_format: Annotated[str | None, optional(_FORMAT, "NAME")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Number of processors to use.")] = 1,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST, help=_SEED)] = 0,
    force: Force = False,
) -> None:
    """Find the wrong labels in a table, with or without rows whose labels are known to be right.

    Several models learn the labels, and each row is judged by models that have not seen its label.
    Numbers, categories, dates and free text are recognised. Writes to the output folder:

    - **labels.csv** (or the format of your table): your table with four more columns: the likely
    label, its probability, the probability that your label is wrong, and a flag;

    - **report.html**: an estimate of how many labels are wrong, with its uncertainty, and the most
    suspicious rows;

    - **review.html**: the flagged rows, and 20 drawn at random, for you to check; pass your
    decisions on with `--trusted`;

    - **model.npz**: a model that labels new rows, for `bilevel predict`.
    """
    from rich.text import Text

    from bilevel.durable.regular import check_given
    from bilevel.errors import UserError

    # Before what takes seconds to import.
    people = tuple(dict.fromkeys(split(annotators or ())))
    if not (label or people):
        raise UserError("name the column with the labels: --label COLUMN")
    if output is None and not explain_columns:
        raise UserError("name a new folder for the results with --output")
    check_given(table)

    from bilevel.apps.cleaning import job, words
    from bilevel.apps.cleaning.given import Told
    from bilevel.apps.cleaning.request import Request
    from bilevel.cli.bars import RunsBar
    from bilevel.cli.bars import console as notes
    from bilevel.durable.interruption import raising

    request = Request(
        train=table,
        label=label,
        annotators=people,
        output=output or Path(),
        trusted=trusted,
        task=task,
        text=tuple(text or ()),
        category=tuple(category or ()),
        ignore=tuple(ignore or ()),
        told=Told.of(separator, decimal, encoding, sheet, table_name),
        output_format=output_format,
        seed=seed,
        force=force or explain_columns,
    )
    console = notes()
    with told_if_interrupted(": nothing is written"), raising():
        prepared = job.prepare(request)
        console.print(Text(f"read {prepared.file.words}"), soft_wrap=True)
        if explain_columns:
            typer.echo(job.explained(prepared.columns))
            return
        for warning in prepared.warnings:
            console.print(Text.assemble(("note: ", "bold yellow"), warning), soft_wrap=True)
        with RunsBar("steps") as bar:
            found = job.run(prepared, bar, jobs)
        name, problem = job.write_all(prepared, found, command=typed())
    for line in words.summary(found, request.annotators):
        typer.echo(line)
    for caution in [*words.cautions(found), *([problem] if problem else [])]:
        console.print(Text.assemble(("note: ", "bold yellow"), caution), soft_wrap=True)
    typer.echo(f"table:  {request.output / name}")
    typer.echo(f"report: {request.output / 'report.html'}")
    typer.echo(f"review: {request.output / 'review.html'}")
    typer.echo(f"model:  {request.output / 'model.npz'}")
