"""`bilevel run`: an experiment into a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command()(run)


def run(
    experiment: Annotated[
        str,
        typer.Argument(
            help="A TOML file, or the name of an experiment that comes with the package.",
            metavar="EXPERIMENT",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The run folder. \\[default: out/NAME]",
            metavar="FOLDER",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="Run seeds 0 to N − 1.", metavar="N", show_default=False),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(help="Seconds for each run.", metavar="SECONDS", show_default=False),
    ] = None,
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
    one goes on from its last checkpoint. `--seeds 10` later adds seeds to those that are there.

    `torchrun --nproc-per-node 2 -m bilevel run mnist-p0.4` spreads the rows of each run over two
    processes. The results are the same. `--max-restarts 3` goes on when a process dies.
    """
    from bilevel.cli.bars import RunsBar
    from bilevel.cli.memory import keep_freed_memory
    from bilevel.cli.typed import typed
    from bilevel.durable.interruption import Interrupted, graceful
    from bilevel.lab.experiments.experiment import load
    from bilevel.lab.experiments.folder import RunFolder
    from bilevel.lab.experiments.runner import follow_experiment, run_experiment
    from bilevel.lab.experiments.summary import summary
    from bilevel.problem.peers import from_environment

    keep_freed_memory()
    chosen = load(experiment).with_limits(seeds, budget)
    folder = output or Path("out") / chosen.name
    try:
        with graceful(), from_environment(timeout) as peers:
            if not peers.leads:
                follow_experiment(chosen, peers)
                return
            with RunsBar() as bar:
                run_experiment(chosen, folder, typed(), bar, peers)
        stopped = None
    except Interrupted as signal:
        stopped = signal
    if begun := RunFolder(folder).begun(chosen):
        typer.echo(summary(begun))
    typer.echo(f"results: {folder}\ndraw them: bilevel report {folder}")
    if stopped:
        typer.echo(f"interrupted: what was done is kept; to go on: {typed()}", err=True)
        raise typer.Exit(stopped.exit_code)
