"""`bilevel sweep`: the best settings on a grid."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command()(sweep)


def sweep(
    experiment: Annotated[
        str,
        typer.Argument(
            help="A TOML file with [sweep.LABEL] tables, or the name of one in the package.",
            metavar="EXPERIMENT",
            show_default=False,
        ),
    ],
    trials: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Points of each grid to try, over all processes. \\[default: all]",
            metavar="N",
            show_default=False,
        ),
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            help="Where Optuna keeps the trials: sqlite:///FILE, or for many machines "
            "postgresql://USER:PASSWORD@HOST/DATABASE. \\[default: sqlite:///out/NAME-sweep.db]",
            metavar="ADDRESS",
            show_default=False,
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(help="Seconds for each trial.", metavar="SECONDS", show_default=False),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(
            help="Write the experiment with the best settings to this file.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Find the settings with the lowest validation loss after a fixed running time.

    `bilevel sweep examples/digits.toml` tries every point of the grids in its [sweep.LABEL]
    tables, such as `inner_lr = [0.1, 1]`.

    `bilevel sweep mnist-p0.2 --trials 40 --budget 6 --write mine.toml` tries 40 points of each of
    the paper's grids, and writes an experiment for `bilevel run mine.toml`.

    Start the same command again after Ctrl-C or a crash, or in several terminals at once, or on
    several machines: all who share the storage share the work. Each point is done once, and what
    a killed process was at is done by another. With as many processes as cores, set
    OMP_NUM_THREADS=1.
    """
    from bilevel.cli.bars import RunsBar
    from bilevel.durable.files import write_text
    from bilevel.durable.interruption import Interrupted, raising
    from bilevel.lab.experiments.experiment import load
    from bilevel.lab.sweeps.storage import shown
    from bilevel.lab.sweeps.sweep import METRIC
    from bilevel.lab.sweeps.sweep import sweep as search

    chosen = load(experiment).with_limits(seconds=budget)
    if storage is None:
        Path("out").mkdir(exist_ok=True)
        storage = f"sqlite:///out/{chosen.name}-sweep.db"
    try:
        with raising(), RunsBar("trials") as bar:
            found = search(chosen, storage, trials, bar)
    except Interrupted as stopped:
        typer.echo(
            f"interrupted: all but the trial in work is in {shown(storage)}; the same command "
            "goes on",
            err=True,
        )
        raise typer.Exit(stopped.exit_code) from stopped
    for label, best in found.items():
        settings = ", ".join(f"{name} = {value}" for name, value in best.settings.items())
        metric = METRIC.replace("_", " ")
        typer.echo(f"{label}: {metric} {best.loss:.4g} in {best.trials} trials with {settings}")
        chosen = chosen.with_settings(label, best.settings)
    if write is not None:
        write_text(write, chosen.to_toml())
        typer.echo(f"written: {write}")
