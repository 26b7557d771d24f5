"""`bilevel run`: an experiment into a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bilevel.cli.options import Budget, Seeds, argument, folder, typed


def register(app: typer.Typer) -> None:
    app.command()(run)


def run(
    experiment: Annotated[
        str, argument("A TOML file, or the name of an experiment in the package.", "EXPERIMENT")
    ],
    output: Annotated[Path | None, folder("The run folder. \\[default: out/NAME]")] = None,
    seeds: Seeds = None,
    budget: Budget = None,
    timeout: Annotated[
        float,
        typer.Option(
            help="With torchrun: how long to wait for the other processes.", metavar="SECONDS"
        ),
    ] = 600.0,
) -> None:
    """Run all algorithms of an experiment, once for each seed.

    `bilevel run examples/digits.toml` writes to out/digits; `bilevel report out/digits` plots it.

    `bilevel run mnist-p0.4 --seeds 2 --budget 10 -o out/quick` is a short version of one of the
    paper's experiments.

    To resume after Ctrl-C or a crash, run the same command again: finished runs are skipped, and
    the interrupted one continues from its last checkpoint. A larger `--seeds` adds seeds.

    `torchrun --nproc-per-node 2 -m bilevel run mnist-p0.4` spreads the rows of each run over two
    processes, with the same results. With `--max-restarts 3` it survives the loss of a process.
    """
    from bilevel.cli.bars import RunsBar
    from bilevel.cli.memory import keep_freed_memory
    from bilevel.durable.interruption import Interrupted, graceful
    from bilevel.lab.experiments.experiment import load
    from bilevel.lab.experiments.runner import run_experiment
    from bilevel.lab.experiments.summary import summary
    from bilevel.lab.notify import silent
    from bilevel.lab.run_folder import Folder
    from bilevel.problem.peers import from_environment

    keep_freed_memory()
    chosen = load(experiment).with_limits(seeds, budget)
    place = output or Path("out") / chosen.name
    try:
        with graceful(), from_environment(timeout) as peers, RunsBar() as bar:
            run_experiment(chosen, place, typed(), bar if peers.leads else silent, peers)
            if not peers.leads:
                return
        stopped = None
    except Interrupted as signal:
        stopped = signal
    if begun := Folder(place).begun(chosen):
        typer.echo(summary(begun))
    typer.echo(f"results: {place}\nplot them: bilevel report {place}")
    if stopped:
        typer.echo(f"interrupted: the results so far are kept; to resume: {typed()}", err=True)
        raise typer.Exit(stopped.exit_code)
