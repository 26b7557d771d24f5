"""`bilevel reproduce`: a figure of the paper, with verdicts on its claims."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bilevel.cli.options import (
    Budget,
    Json,
    Seeds,
    argument,
    folder,
    print_json,
    told_if_interrupted,
    typed,
)
from bilevel.lab.figures import figure_names

if TYPE_CHECKING:
    from bilevel.cli.bars import RunsBar
    from bilevel.lab.experiments.reproduce import Scale
    from bilevel.lab.experiments.verdicts import Row

_ALL, _DESIGN = "all", "design"

_EPILOG = """
**Examples**

`bilevel reproduce figure-5 --quick`

`bilevel reproduce figure-2 --only fc100`
"""


def register(app: typer.Typer) -> None:
    app.command(epilog=_EPILOG)(reproduce)


def reproduce(
    figure: Annotated[
        str, argument(f"One of {', '.join(figure_names())}, {_DESIGN}, or {_ALL}.", "FIGURE")
    ],
    seeds: Seeds = None,
    budget: Budget = None,
    only: Annotated[
        str | None, typer.Option(help="Run only this experiment of the figure, such as fc100.")
    ] = None,
    without: Annotated[
        str | None, typer.Option(help="Leave out these algorithms, such as anil,maml.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="5 seeds, 1.2 seconds per run: a first impression.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would run, and for how long, and exit.")
    ] = False,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume/--no-resume",
            help="Resume the runs in the folder; --no-resume refuses a folder that has some.",
        ),
    ] = True,
    output: Annotated[
        Path | None, folder("Folder for runs and verdicts. \\[default: out/FIGURE]")
    ] = None,
    json: Json = False,
) -> None:
    """Reproduce a figure of the paper (Ji, Yang & Liang, ICML 2021) and test the paper's claims.

    `bilevel reproduce figure-5 --quick` gives a first impression in about two minutes.

    `bilevel reproduce figure-5 --seeds 5 --budget 30` runs both corruption rates, and gives a
    verdict on each claim: confirmed, contradicted or undecided, with intervals.

    `bilevel reproduce design` tests the claims about the parts of the methods, and
    `bilevel reproduce all --dry-run` shows how long everything would take.

    To resume after Ctrl-C or a crash, run the same command again. Plot each run folder with
    `bilevel report`. How verdicts are reached: docs/reproductions/protocol.md.
    """
    from bilevel.cli.bars import RunsBar
    from bilevel.cli.memory import keep_freed_memory
    from bilevel.durable.interruption import graceful
    from bilevel.errors import UserError
    from bilevel.lab.experiments.reproduce import QUICK, Scale
    from bilevel.lab.figures import find_figure

    scale = Scale(
        seeds or (QUICK.seeds if quick else None),
        budget or (QUICK.seconds if quick else None),
        QUICK.evaluations if quick else None,
        only,
        without,
    )
    names = [*figure_names(), _DESIGN] if figure == _ALL else [figure]
    for name in names:
        if name != _DESIGN:
            scale.applied(find_figure(name))  # a wrong name is an error before any work
    places = {name: _place(name, figure, quick, output) for name in names}
    if dry_run:
        _tell_plan(places, scale)
        return
    for place in places.values():
        if not resume and place.exists() and any(place.iterdir()):
            raise UserError(
                f"{place} is not empty: leave out --no-resume to resume it, or choose another "
                "folder with -o"
            )
    keep_freed_memory()
    folders = ", ".join(map(str, places.values()))
    kept = f" before the verdicts: the runs in {folders} are kept; to resume: {typed()}"
    rows: dict[str, list[Row]] = {}
    failed: dict[str, UserError] = {}
    with told_if_interrupted(kept), graceful(), RunsBar() as bar:
        for name, place in places.items():
            try:
                rows[name] = _judged(name, place, typed(), scale, bar)
            except UserError as error:  # such as data that only a person can get
                failed[name] = error
                if figure != _ALL:
                    raise
    if json:
        print_json({name: [vars(row) for row in found] for name, found in rows.items()})
    else:
        for name, found in rows.items():
            _tell(found)
            where = places[name] if name == _DESIGN else places[name] / "verdicts.md"
            typer.echo(f"every comparison: {where}")
        if quick:
            typer.echo("a first impression: the protocol requires longer runs to decide a claim")
    if failed:
        raise UserError("; ".join(f"{name} was not run: {error}" for name, error in failed.items()))


def _place(name: str, asked: str, quick: bool, output: Path | None) -> Path:
    if output is not None:
        return output / name if asked == _ALL else output
    return Path("out") / (f"{name}-quick" if quick else name)


def _judged(name: str, place: Path, command: str, scale: Scale, bar: RunsBar) -> list[Row]:
    from bilevel.lab.experiments.reproduce import reproduce as run_and_judge
    from bilevel.lab.figures import find_figure

    if name == _DESIGN:
        from bilevel.lab.design.job import judge, measure

        return judge(measure(place, command, bar))
    return run_and_judge(find_figure(name), place, command, scale=scale, notify=bar)


def _tell_plan(places: dict[str, Path], scale: Scale) -> None:
    from bilevel.lab.experiments.reproduce import loads
    from bilevel.lab.figures import find_figure
    from bilevel.lab.text_table import aligned

    rows = [["figure", "experiment", "runs", "done", "seconds each", "clock", "minutes left"]]
    total = 0.0
    for name, place in places.items():
        if name == _DESIGN:
            rows.append([name, "six studies, 30 seeds", "", "", "", "cpu", "about 6"])
            continue
        for load in loads(find_figure(name), place, scale):
            total += load.left
            numbers = [str(load.runs), str(load.done), f"{load.seconds:g}", load.clock]
            rows.append([name, load.experiment, *numbers, f"{load.left / 60:.1f}"])
    typer.echo(aligned(rows))
    typer.echo(f"{total / 3600:.1f} hours in all, evaluation excluded; nothing was run")


def _tell(rows: Sequence[Row]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(soft_wrap=True, highlight=False)
    colours = {"confirmed": "green", "undecided": "yellow", "contradicted": "red"}
    for row in rows:
        console.print(Text(row.verdict, f"bold {colours[row.verdict]}"), Text(row.claim))
        console.print(Text(f"  {row.experiment}, {row.seeds} seeds: {row.weakest}"))
