"""`bilevel reproduce`: a figure of the paper, with verdicts on its claims."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bilevel.cli.options import Budget, Seeds, argument, folder
from bilevel.lab.figures import figure_names


def register(app: typer.Typer) -> None:
    app.command()(reproduce)


def reproduce(
    figure: Annotated[str, argument(f"One of {', '.join(figure_names())}.", "FIGURE")],
    seeds: Seeds = None,
    budget: Budget = None,
    output: Annotated[
        Path | None, folder("The folder for runs and verdicts. \\[default: out/FIGURE]")
    ] = None,
) -> None:
    """Run a figure of the paper (Ji, Yang & Liang, ICML 2021) and judge what the paper says of it.

    `bilevel reproduce figure-5 --seeds 5 --budget 30` runs both corruption rates, and prints and
    stores a verdict for each claim: confirmed, partly or contradicted, with the numbers.

    Run the same command again after Ctrl-C or a crash: it resumes where it stopped. Draw each run
    folder with `bilevel report`.
    """
    from rich.console import Console
    from rich.text import Text

    from bilevel.cli.bars import RunsBar
    from bilevel.cli.memory import keep_freed_memory
    from bilevel.cli.typed import told_if_interrupted, typed
    from bilevel.durable.interruption import graceful
    from bilevel.lab.experiments.reproduce import reproduce as run_and_judge
    from bilevel.lab.figures import find_figure

    keep_freed_memory()
    chosen = find_figure(figure)
    place = output or Path("out") / figure
    kept = (
        f" before the verdicts: the runs in {place} are kept, and `bilevel report` can draw them; "
        f"to go on: {typed()}"
    )
    with told_if_interrupted(kept), graceful(), RunsBar() as bar:
        rows = run_and_judge(chosen, place, typed(), seeds=seeds, seconds=budget, notify=bar)
    console = Console(soft_wrap=True, highlight=False)
    colours = {"confirmed": "green", "partly": "yellow", "contradicted": "red"}
    for row in rows:
        console.print(Text(row.verdict, f"bold {colours[row.verdict]}"), Text(row.claim))
        console.print(Text(f"  {row.experiment}, {row.seeds} seeds: {row.numbers}"))
    typer.echo(f"results: {place}")
