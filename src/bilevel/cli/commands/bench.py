"""`bilevel bench`: methods against the clock on the field's problems."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bilevel.cli.options import MOST_SEEDS, folder, optional, told_if_interrupted, typed
from bilevel.cli.usage import split

_EPILOG = """
**Examples**

`bilevel bench --list`

`bilevel bench ijcnn1 --methods saba,soba,aid-bio --seconds 8 --seeds 3`

`bilevel bench quadratics --methods saba --seconds 1` takes a few seconds.
"""
_USUAL = ("saba", "soba", "stocbio", "aid-bio")
_METHODS = (
    "Methods, separated by commas; NAME:published uses the settings tuned by benchmark_bilevel. "
    f"\\[default: {','.join(_USUAL)}]"
)


def register(app: typer.Typer) -> None:
    app.command(epilog=_EPILOG)(bench)


def bench(
    problem: Annotated[str | None, typer.Argument(help="One of the problems of --list.")] = None,
    more: Annotated[list[str] | None, typer.Argument(help="More methods.", hidden=True)] = None,
    methods: Annotated[list[str] | None, optional(_METHODS, "NAMES")] = None,
    seconds: Annotated[float, typer.Option(help="Processor time per run.", min=0.01)] = 8.0,
    seeds: Annotated[int, typer.Option(help="Run seeds 0 to N − 1.", min=1, max=MOST_SEEDS)] = 3,
    output: Annotated[
        Path | None, folder("Folder for the results. \\[default: out/bench-PROBLEM]")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the problems and exit.")] = False,
) -> None:
    """Compare methods on a published benchmark problem, over time and over samples.

    Each run gets the given processor time, without evaluations; the time to compile kernels at
    first use is reported separately. Writes report.html (curves: medians over the seeds, and their
    range), table.md and the metrics of every run to the output folder. Run the same command again
    to resume, or with more methods or seeds to add them.
    """
    from bilevel.datasets.field_problems import benchmarks
    from bilevel.errors import UserError, quoted

    if list_:
        typer.echo("\n".join(benchmarks()))
        return
    if problem not in benchmarks():
        wrong = "name a problem" if problem is None else f"there is no problem {quoted(problem)}"
        example = "for example: bilevel bench ijcnn1 --methods saba,soba"
        raise UserError(f"{wrong}: one of {', '.join(benchmarks())}; {example}")

    from bilevel.cli.bars import RunsBar
    from bilevel.durable.files import write_text
    from bilevel.durable.interruption import raising
    from bilevel.lab.bench.job import Bench, run
    from bilevel.lab.bench.page import lines, table, write_page
    from bilevel.lab.text_table import aligned
    from bilevel.report.blocks import Code

    place = output or Path("out") / f"bench-{problem}"
    # `--methods soba saba`, with blanks, leaves the second as an argument of its own.
    names = dict.fromkeys(split([*(methods or _USUAL), *(more or [])]))
    what = Bench(problem, tuple(names), seconds, seeds)
    kept = f": all measurements are in {place}; run the same command again to resume"
    with told_if_interrupted(kept), raising(), RunsBar("runs") as bar:
        curves = run(what, place, bar)
    found = table(what, curves, place)
    text = aligned(lines(found))
    write_text(place / "table.md", f"{found.caption}\n\n{text}\n\n{found.note}\n")
    write_page(place / "report.html", what, curves, found, Code("The command", typed()))
    typer.echo(f"{found.caption}\n\n{text}\n\nreport: {place / 'report.html'}")
