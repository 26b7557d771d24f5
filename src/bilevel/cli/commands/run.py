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
            help="With torchrun: how long a process waits for the others.", metavar="SECONDS"
        ),
    ] = 600.0,
) -> None:
    """Run an experiment's algorithms on all its seeds.

    `bilevel run examples/digits.toml` writes to out/digits; `bilevel report out/digits` draws it.

    `bilevel run mnist-p0.4 --seeds 2 --budget 10 -o out/quick` tries one of the paper's.

    Run the same command again after Ctrl-C or a crash: finished runs are skipped, the interrupted
    one resumes from its last checkpoint. `--seeds 10` later adds seeds to those already run.

    `torchrun --nproc-per-node 2 -m bilevel run mnist-p0.4` spreads the rows of each run over two
    processes. The results are the same. With `--max-restarts 3` it survives a process that dies.
    """
    from bilevel.cli.bars import RunsBar
    from bilevel.cli.memory import keep_freed_memory
    from bilevel.durable.interruption import Interrupted, graceful
    from bilevel.lab.experiments.experiment import load
    from bilevel.lab.experiments.runner import follow_experiment, run_experiment
    from bilevel.lab.experiments.summary import summary
    from bilevel.lab.run_folder import Folder
    from bilevel.problem.peers import from_environment

    keep_freed_memory()
    chosen = load(experiment).with_limits(seeds, budget)
    place = output or Path("out") / chosen.name
    try:
        with graceful(), from_environment(timeout) as peers:
            if not peers.leads:
                follow_experiment(chosen, peers)
                return
            with RunsBar() as bar:
                run_experiment(chosen, place, typed(), bar, peers)
        stopped = None
    except Interrupted as signal:
        stopped = signal
    if begun := Folder(place).begun(chosen):
        typer.echo(summary(begun))
    typer.echo(f"results: {place}\ndraw them: bilevel report {place}")
    if stopped:
        typer.echo(f"interrupted: what was done is kept; to go on: {typed()}", err=True)
        raise typer.Exit(stopped.exit_code)
