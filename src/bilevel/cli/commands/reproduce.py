"""`bilevel reproduce`: a figure of the paper, with verdicts on its claims."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bilevel.lab.figures import figure_names


def register(app: typer.Typer) -> None:
    app.command()(reproduce)


def reproduce(
    figure: Annotated[
        str,
        typer.Argument(
            help=f"One of {', '.join(figure_names())}.", metavar="FIGURE", show_default=False
        ),
    ],
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="Run seeds 0 to N − 1.", metavar="N", show_default=False),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(help="Seconds for each run.", metavar="SECONDS", show_default=False),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The folder for runs and verdicts. \\[default: out/FIGURE]",
            metavar="FOLDER",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run a figure of the paper (Ji, Yang & Liang, ICML 2021) and judge what the paper says of it.

    `bilevel reproduce figure-5 --seeds 5 --budget 30` runs both corruption rates, and prints and
    stores a verdict for each claim: confirmed, partly or contradicted, with the numbers.

    Run the same command again after Ctrl-C or a crash: it goes on where it was. Draw each run
    folder with `bilevel report`.
    """
    from rich.console import Console
    from rich.text import Text

    from bilevel.cli.bars import RunsBar
    from bilevel.cli.memory import keep_freed_memory
    from bilevel.cli.typed import typed
    from bilevel.durable.interruption import Interrupted, graceful
    from bilevel.lab.experiments.reproduce import reproduce as run_and_judge
    from bilevel.lab.figures import find_figure

    keep_freed_memory()
    chosen = find_figure(figure)
    folder = output or Path("out") / figure
    try:
        with graceful(), RunsBar() as bar:
            rows = run_and_judge(chosen, folder, typed(), seeds=seeds, seconds=budget, notify=bar)
    except Interrupted as stopped:
        typer.echo(
            f"interrupted before the verdicts: the runs in {folder} are kept, and `bilevel report` "
            f"can draw them; to go on: {typed()}",
            err=True,
        )
        raise typer.Exit(stopped.exit_code) from stopped
    console = Console(soft_wrap=True, highlight=False)
    colours = {"confirmed": "green", "partly": "yellow", "contradicted": "red"}
    for row in rows:
        console.print(Text(row.verdict, f"bold {colours[row.verdict]}"), Text(row.claim))
        console.print(Text(f"  {row.experiment}, {row.seeds} seeds: {row.numbers}"))
    typer.echo(f"results: {folder}")
