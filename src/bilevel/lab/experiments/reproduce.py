"""Run the experiments of a figure, and judge what the paper says of it."""

from __future__ import annotations

from pathlib import Path

from bilevel.durable.files import write_text
from bilevel.lab.experiments.experiment import load
from bilevel.lab.experiments.runner import run_experiment
from bilevel.lab.experiments.verdicts import Evidence, Figure, Row, to_json, to_markdown
from bilevel.lab.notify import Notify, silent


def reproduce(
    figure: Figure,
    folder: Path,
    command: str,
    *,
    seeds: int | None = None,
    seconds: float | None = None,
    notify: Notify = silent,
) -> list[Row]:
    """Run what is not yet done of a figure's experiments, and judge its claims.

    Args:
        figure: one of `bilevel.lab.figures`.
        folder: gets a run folder for each experiment, and the verdicts on all of them; each
            run folder gets the verdicts that concern it.
        command: what the user typed, for the record.
        seeds: how many, in place of the experiments' own.
        seconds: the budget of a run, in place of the experiments' own.
        notify: told of the progress.

    Returns:
        The verdicts.
    """
    experiments = [load(name).with_limits(seeds, seconds) for name in figure.experiments]
    evidence = {}
    for experiment in experiments:
        results = run_experiment(experiment, folder / experiment.name, command, notify)
        curves = results.begun(experiment)
        last = max(curve.last("seconds") for seeds in curves.values() for curve in seeds)
        evidence[experiment.name] = Evidence.within(curves, experiment.budget.seconds or last)
    rows = figure.judge(evidence)
    for name in figure.experiments:
        own = [row for row in rows if name in row.experiment.split(", ")]
        _write(folder / name, figure, own, command)
    _write(folder, figure, rows, command)
    return rows


def _write(folder: Path, figure: Figure, rows: list[Row], command: str) -> None:
    write_text(folder / "verdicts.json", to_json(rows))
    write_text(folder / "verdicts.md", to_markdown(figure, rows, command))
