"""`bilevel complexity`: the paper's Tables 1 and 2, measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bilevel.cli.options import MOST_SEEDS, folder, optional, told_if_interrupted, typed

_EPILOG = """
**Examples**

`bilevel complexity --quick` measures small versions in seconds.

`bilevel complexity --full` takes minutes, and writes out/complexity/report.html.

`bilevel complexity --full --seeds 8` later adds seeds 4 to 7, for narrower intervals.
"""
_SEEDS = "Number of problems for each κ, with seeds 0 to N − 1. \\[default: 4, quick: 2]"
_TABLE = "Measure only this table. \\[default: both]"
_FOLDER = "Folder for the results. \\[default: out/complexity, or out/complexity-quick]"


def register(app: typer.Typer) -> None:
    app.command(epilog=_EPILOG)(complexity)


def complexity(
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer κ, ε and seeds: a minute at most.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="All of them: minutes.")] = False,
    seeds: Annotated[int | None, optional(_SEEDS, "N", min=1, max=MOST_SEEDS)] = None,
    table: Annotated[int | None, optional(_TABLE, "N", min=1, max=2)] = None,
    output: Annotated[Path | None, folder(_FOLDER)] = None,
) -> None:
    """Measure the cost of an ε-stationary point for each method (Tables 1 and 2 of the paper).

    Runs AID-BiO, ITD-BiO, AID-BiO-increasing, stocBiO, BSA and TTSA on problems with a given
    condition number κ, counts gradients, cross products and Hessian-vector products until
    ‖∇Φ‖² ≤ ε, fits powers of κ and 1/ε, and prints them next to the orders in the paper, which
    are upper bounds. Writes to the output folder:

    - **report.html**: tables, verdicts and plots;

    - **tables.md** and a figure for each table;

    - **counts.json**: every count of every run.

    To resume after Ctrl-C or a crash, run the same command again.
    """
    from bilevel.errors import UserError

    if quick == full:
        raise UserError(
            "choose how much to measure: bilevel complexity --quick (a minute at most, writes to "
            "out/complexity-quick) or bilevel complexity --full (minutes, to out/complexity)"
        )

    from dataclasses import replace

    from bilevel.cli.bars import RunsBar
    from bilevel.durable.interruption import raising
    from bilevel.lab.complexity.job import measure, write_results
    from bilevel.lab.complexity.studies import FULL, QUICK
    from bilevel.lab.complexity.tables import as_text, lines

    place = output or Path("out") / ("complexity-quick" if quick else "complexity")
    chosen = QUICK if quick else FULL
    studies = [
        replace(study, seeds=seeds or study.seeds)
        for study in chosen
        if table in (None, study.table)
    ]
    kept = f": finished cells are in {place}; run the same command again to resume"
    with told_if_interrupted(kept), raising(), RunsBar("cells") as bar:
        found = measure(studies, place, typed(), bar)
    write_results(place, studies, found, typed())
    for study in studies:
        typer.echo(as_text(study, lines(study, found[study.name])) + "\n")
    typer.echo(f"report: {place / 'report.html'}\ncounts: {place / 'counts.json'}")
