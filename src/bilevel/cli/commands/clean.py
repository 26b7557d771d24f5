"""`bilevel clean`: find the wrong labels in a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bilevel.arguments import LARGEST_SEED
from bilevel.cli.options import Force, NewFolder, optional

_EPILOG = """
**Examples**

`bilevel clean orders.csv --label category --trusted checked.csv --output cleaned`

`bilevel clean orders.csv --label category --trusted-column verified --drop id --output cleaned`

`bilevel clean images.npz --label y --trusted trusted.npz --output cleaned --algorithm stocbio`
"""
_TRUSTED = "A table of the same form whose labels are right."
_COLUMN = "Or: a true/false column of TRAIN that marks rows with right labels."
_FRACTION = "Trust this fraction of the marked rows, and clean the others."
_DROP = "A column to leave out, such as an id. Repeatable."
_CATEGORICAL = "A column of numbers that are categories, such as a code. Repeatable."
_SEED = "The same seed gives the same result."
_CHECKPOINT = "Keep checkpoints in this folder, from which the same command resumes."


def register(app: typer.Typer) -> None:
    app.command(epilog=_EPILOG)(clean)


def clean(
    train: Annotated[
        Path, typer.Argument(help="The table with doubtful labels: CSV, Parquet or NPZ.")
    ],
    label: Annotated[str, typer.Option(help="The column with the labels.")],
    output: NewFolder,
    trusted: Annotated[Path | None, typer.Option(help=_TRUSTED)] = None,
    trusted_column: Annotated[str | None, typer.Option(help=_COLUMN)] = None,
    trusted_fraction: Annotated[float, typer.Option(min=0.0, max=1.0, help=_FRACTION)] = 1.0,
    drop: Annotated[list[str] | None, typer.Option(help=_DROP)] = None,
    categorical: Annotated[list[str] | None, typer.Option(help=_CATEGORICAL)] = None,
    algorithm: Annotated[
        str, typer.Option(help="aid-bio, hoag, stocbio, ...; see the README for all.")
    ] = "aid-bio",
    ridge: Annotated[
        float, typer.Option(min=1e-12, help="The penalty on the model's weights, C_r.")
    ] = 1e-3,
    steps: Annotated[int, typer.Option(min=1, help="The most outer steps.")] = 30,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help=_SEED)] = 0,
    force: Force = False,
    checkpoint: Annotated[Path | None, optional(_CHECKPOINT, "FOLDER")] = None,
    checkpoint_every: Annotated[
        float, typer.Option(min=0, help="Seconds between two checkpoints.", metavar="SECONDS")
    ] = 60.0,
) -> None:
    """Find the wrong labels in a table, with the help of some rows whose labels are right.

    Learns a weight for each row, such that a linear model trained with these weights does well on
    the trusted rows; then flags the rows whose labels are unlikely. Writes to the output folder:

    - **labels.csv**: for each row its label, its likely label, suspicion, weight and flag;

    - **report.html**: the most suspicious rows, plots, accuracy before and after;

    - **model.npz**: the weights of a linear model fitted without the flagged rows; the report
    says how to use it.

    Numbers are scaled and their gaps filled with the median; text is one-hot encoded.
    About fifty trusted rows per class are plenty.

    Ctrl-C writes the results so far; twice, it stops at once. With `--checkpoint` the same command
    goes on afterwards, and after a crash, too.
    """
    from rich.console import Console
    from rich.text import Text

    from bilevel.apps.cleaning import job
    from bilevel.apps.cleaning.request import Request
    from bilevel.cli.typed import typed
    from bilevel.durable.folders import check_writable
    from bilevel.durable.interruption import graceful
    from bilevel.runs.callbacks import ProgressBar
    from bilevel.runs.result import Status

    request = Request(
        train=train,
        label=label,
        trusted=trusted,
        output=output,
        trusted_column=trusted_column,
        trusted_fraction=trusted_fraction,
        drop=tuple(drop or ()),
        categorical=tuple(categorical or ()),
        algorithm=algorithm,
        ridge=ridge,
        steps=steps,
        seed=seed,
        force=force,
    )
    if checkpoint is not None:
        check_writable(checkpoint)
    prepared = job.prepare(request)
    console = Console(stderr=True)
    for warning in prepared.warnings:
        console.print(Text.assemble(("warning: ", "bold yellow"), warning), soft_wrap=True)
    with graceful() as interruption:
        with ProgressBar("cleaning", console) as bar:
            found = job.run(
                prepared,
                callbacks=[bar],
                checkpoint=checkpoint,
                checkpoint_every=checkpoint_every,
            )
        if not found.result.history and found.result.status is Status.INTERRUPTED:
            typer.echo("interrupted before the first step was done: nothing is written", err=True)
            raise typer.Exit(interruption.exit_code)
        job.write(prepared, found, command=typed())
    rows = len(found.flagged)
    typer.echo(
        f"{int(found.flagged.sum()):,} of {rows:,} labels are probably wrong.\n"
        f"accuracy on held-back trusted rows: {found.accuracy_before:.1%} with them, "
        f"{found.accuracy_after:.1%} without\n"
        f"table:  {output / 'labels.csv'}\n"
        f"report: {output / 'report.html'}\n"
        f"model:  {output / 'model.npz'}"
    )
    if found.result.status is Status.INTERRUPTED:
        again = typed() if force else f"{typed()} --force"
        advice = f"to go on: {again}" if checkpoint else "with --checkpoint FOLDER it could go on"
        step = found.result.state.step
        typer.echo(f"interrupted: these are the results after step {step}; {advice}", err=True)
        raise typer.Exit(interruption.exit_code)
