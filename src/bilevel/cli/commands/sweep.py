"""`bilevel sweep`: the best settings on a grid."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bilevel.cli.options import Json, argument, optional, print_json, told_if_interrupted

_EXPERIMENT = "A TOML file with [sweep.LABEL] tables, or the name of one in the package."
_TRIALS = "How many points of each grid to try, over all processes. \\[default: all]"
_STORAGE = (
    "Database for Optuna's trials: sqlite:///FILE, or for several machines "
    "postgresql://USER:PASSWORD@HOST/DATABASE. \\[default: sqlite:///out/NAME-sweep.db]"
)
_WRITE = "Write an experiment with the best settings to this file."


def register(app: typer.Typer) -> None:
    app.command()(sweep)


def sweep(
    experiment: Annotated[str, argument(_EXPERIMENT, "EXPERIMENT")],
    trials: Annotated[int | None, optional(_TRIALS, "N", min=1)] = None,
    storage: Annotated[str | None, optional(_STORAGE, "ADDRESS")] = None,
    budget: Annotated[float | None, optional("Time limit of each trial.", "SECONDS")] = None,
    write: Annotated[Path | None, optional(_WRITE, "FILE")] = None,
    json: Json = False,
) -> None:
    """Find the settings with the lowest validation loss after a fixed running time.

    `bilevel sweep examples/digits.toml` tries every point of the grids in its [sweep.LABEL]
    tables, such as `inner_lr = [0.1, 1]`.

    `bilevel sweep mnist-p0.2 --trials 40 --budget 6 --write mine.toml` tries 40 points of each of
    the paper's grids, and writes an experiment for `bilevel run mine.toml`.

    Run the same command again to resume after Ctrl-C or a crash, or run it in several terminals or
    on several machines at once: processes with the same storage share the work. Each point is
    evaluated once; if a process is killed, another one takes over its point. With as many
    processes as cores, set OMP_NUM_THREADS=1.
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
    kept = f": finished trials are in {shown(storage)}; run the same command again to resume"
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
