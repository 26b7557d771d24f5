"""`bilevel sweep`: the best settings on a grid."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bilevel.cli.options import Json, argument, optional, print_json, told_if_interrupted

_EXPERIMENT = "A TOML file with [sweep.LABEL] tables, or the name of one in the package."
_TRIALS = "Points of each grid to try, over all processes. \\[default: all]"
_STORAGE = (
    "Where Optuna keeps the trials: sqlite:///FILE, or for many machines "
    "postgresql://USER:PASSWORD@HOST/DATABASE. \\[default: sqlite:///out/NAME-sweep.db]"
)
_WRITE = "Write the experiment with the best settings to this file."


def register(app: typer.Typer) -> None:
    app.command()(sweep)


def sweep(
    experiment: Annotated[str, argument(_EXPERIMENT, "EXPERIMENT")],
    trials: Annotated[int | None, optional(_TRIALS, "N", min=1)] = None,
    storage: Annotated[str | None, optional(_STORAGE, "ADDRESS")] = None,
    budget: Annotated[float | None, optional("Seconds for each trial.", "SECONDS")] = None,
    write: Annotated[Path | None, optional(_WRITE, "FILE")] = None,
    json: Json = False,
) -> None:
    """Find the settings with the lowest validation loss after a fixed running time.

    `bilevel sweep examples/digits.toml` tries every point of the grids in its [sweep.LABEL]
    tables, such as `inner_lr = [0.1, 1]`.

    `bilevel sweep mnist-p0.2 --trials 40 --budget 6 --write mine.toml` tries 40 points of each of
    the paper's grids, and writes an experiment for `bilevel run mine.toml`.

    Start the same command again after Ctrl-C or a crash, or in several terminals at once, or on
    several machines: all processes with the same storage share the work. Each point is done once,
    and a point whose process was killed is done by another. With as many processes as cores, set
    OMP_NUM_THREADS=1.
    """
    from bilevel.cli.bars import RunsBar
    from bilevel.durable.files import write_text
    from bilevel.durable.folders import check_file
    from bilevel.durable.interruption import raising
    from bilevel.lab.experiments.experiment import load
    from bilevel.lab.sweeps.storage import shown
    from bilevel.lab.sweeps.sweep import METRIC
    from bilevel.lab.sweeps.sweep import sweep as search

    chosen = load(experiment).with_limits(seconds=budget)
    if write is not None:
        check_file(write)
    if storage is None:
        Path("out").mkdir(exist_ok=True)
        storage = f"sqlite:///out/{chosen.name}-sweep.db"
    kept = f": all finished trials are in {shown(storage)}; the same command goes on"
    with told_if_interrupted(kept), raising(), RunsBar("trials") as bar:
        found = search(chosen, storage, trials, bar)
    if json:
        print_json({label: vars(best) for label, best in found.items()})
    for label, best in found.items():
        settings = ", ".join(f"{name} = {value}" for name, value in best.settings.items())
        metric = METRIC.replace("_", " ")
        if not json:
            typer.echo(f"{label}: {metric} {best.loss:.4g} in {best.trials} trials with {settings}")
        chosen = chosen.with_settings(label, best.settings)
    if write is not None:
        write_text(write, chosen.to_toml())
        typer.echo(f"written: {write}")
