"""`bilevel complexity`: the paper's Tables 1 and 2, measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_EPILOG = """
**Examples**

`bilevel complexity --quick` measures small versions in seconds.

`bilevel complexity` takes minutes, and writes out/complexity/report.html.

`bilevel complexity --seeds 8` later adds seeds 4 to 7, for narrower intervals.
"""


def register(app: typer.Typer) -> None:
    app.command(epilog=_EPILOG)(complexity)


def complexity(
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer κ, ε and seeds: a minute at most.")
    ] = False,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Problems drawn for each κ, by seeds 0 to N − 1. \\[default: 4, quick: 2]",
            metavar="N",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The folder for results. \\[default: out/complexity, or out/complexity-quick]",
            metavar="FOLDER",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Measure what each method pays for an ε-stationary point (Tables 1 and 2 of the paper).

    Runs AID-BiO, ITD-BiO, AID-BiO-increasing, stocBiO, BSA and TTSA on problems of a chosen
    condition number κ, counts gradients, cross products and Hessian-vector products until
    ‖∇Φ‖² ≤ ε, fits powers of κ and 1/ε, and prints them beside the paper's orders, which are
    upper bounds. Writes to the output folder:

    - **report.html**: tables, verdicts and plots;

    - **tables.md** and a figure for each table;

    - **counts.json**: every count of every run.

    Run the same command again after Ctrl-C or a crash: what is finished is not measured again.
    """
    from dataclasses import replace

    from bilevel.cli.bars import RunsBar
    from bilevel.cli.typed import typed
    from bilevel.durable.interruption import Interrupted, raising
    from bilevel.lab.complexity.job import measure
    from bilevel.lab.complexity.results import write_results
    from bilevel.lab.complexity.studies import FULL, QUICK
    from bilevel.lab.complexity.tables import as_text, lines

    folder = output or Path("out") / ("complexity-quick" if quick else "complexity")
    chosen = QUICK if quick else FULL
    studies = [replace(study, seeds=seeds or study.seeds) for study in chosen]
    try:
        with raising(), RunsBar("cells") as bar:
            found = measure(studies, folder, bar)
    except Interrupted as stopped:
        typer.echo(
            f"interrupted: all but the cell in work is in {folder}; the same command goes on",
            err=True,
        )
        raise typer.Exit(stopped.exit_code) from stopped
    write_results(folder, studies, found, typed())
    for study in studies:
        typer.echo(as_text(study, lines(study, found[study.name])) + "\n")
    typer.echo(f"report: {folder / 'report.html'}\ncounts: {folder / 'counts.json'}")
