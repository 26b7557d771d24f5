"""`bilevel soak`: long runs, watched for what they hold on to."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command()(soak)


def soak(
    algorithms: Annotated[
        list[str] | None,
        typer.Argument(help="Their names. \\[default: all]", metavar="NAME", show_default=False),
    ] = None,
    steps: Annotated[
        int, typer.Option(min=100, help="Outer steps of each run.", metavar="N")
    ] = 1000,
) -> None:
    """See whether memory, Python objects or open files grow in long runs.

    `bilevel soak` runs every algorithm on losses without data, on rows with checkpoints, and on
    few-shot tasks: two or three minutes. `bilevel soak stocbio --steps 20000` runs one for longer.

    Each line compares the last quarter of a run with its second. The history, which is kept by
    design, is not counted as growth; its size a step stands in the last column. Ends with exit
    code 1 if something grows. Needs Linux.
    """
    from bilevel.experiments.runner import torch_threads
    from bilevel.soak.cases import soak as run
    from bilevel.soak.table import heading, line

    typer.echo(heading())
    findings = []
    with torch_threads(1):  # the problems are small
        for finding in run(steps, algorithms):
            typer.echo(line(finding))
            findings.append(finding)
    bad = [finding for finding in findings if finding.is_bad]
    ran = [finding for finding in findings if finding.growth]
    typer.echo(f"{len(ran) - len(bad)} of {len(ran)} runs of {steps:,} steps are flat")
    if bad:
        raise typer.Exit(1)
