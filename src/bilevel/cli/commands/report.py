"""`bilevel report`: runs compared on one page."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bilevel.cli.options import argument, optional


class Format(StrEnum):
    """What figures are written as."""

    PNG = "png"
    SVG = "svg"
    PDF = "pdf"


def register(app: typer.Typer) -> None:
    app.command()(report)


def report(
    runs: Annotated[
        list[Path], argument("Run folders of one experiment, as `bilevel run` writes them.", "RUN")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The page to write.", metavar="FILE")
    ] = Path("report.html"),
    figures: Annotated[
        Path | None, optional("Also write figures for print to this folder.", "FOLDER")
    ] = None,
    formats: Annotated[
        list[Format] | None,
        typer.Option(
            "--format",
            help="Format of the figures. Repeatable. \\[default: png]",
            show_default=False,
        ),
    ] = None,
    unfinished: Annotated[
        bool,
        typer.Option("--unfinished", help="Include runs that are not finished."),
    ] = False,
) -> None:
    """Compare the runs of an experiment on one self-contained HTML page.

    `bilevel report runs/mnist -o report.html` plots losses, accuracies and the norm of the
    hypergradient against seconds, outer steps and oracle counts: means and ranges over the seeds.

    `bilevel report runs/mnist runs/mnist-more-seeds -o report.html` combines several folders of the
    same experiment.

    `bilevel report runs/mnist --figures figures --format pdf --format png` also writes figures
    of single and double column width.
    """
    from bilevel.durable.folders import named_errors
    from bilevel.errors import UserError
    from bilevel.lab.comparison.comparison import compare
    from bilevel.lab.comparison.page import experiment_page
    from bilevel.lab.comparison.plots import write_figures
    from bilevel.lab.run_folder import Folder

    if formats and figures is None:
        raise UserError("--format is for figures; say where to put them with --figures FOLDER")
    comparison = compare([Folder(path).checked() for path in runs], unfinished=unfinished)
    with named_errors(output, "name another file with -o", "write the report"):
        experiment_page(comparison).write(output)
    typer.echo(f"report: {output}")
    if figures is not None:
        files = write_figures(comparison, figures, formats or [Format.PNG])
        typer.echo(f"figures: {len(files)} in {figures}")
