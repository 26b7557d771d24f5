"""Run the experiments of a figure, and judge what the paper says of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from bilevel.durable.files import write_text
from bilevel.errors import UserError, quoted
from bilevel.lab.experiments.archive import evidence, pack, write
from bilevel.lab.experiments.experiment import Experiment, load
from bilevel.lab.experiments.runner import run_experiment
from bilevel.lab.experiments.verdicts import Figure, Row, to_markdown
from bilevel.lab.notify import Notify, silent
from bilevel.lab.plain_files import write_json
from bilevel.lab.run_folder import Folder


@dataclass(frozen=True)
class Scale:
    """How much is run, where it is not what the experiments' files say.

    Args:
        seeds: how many.
        seconds: the budget of a run.
        evaluations: of a run.
        only: the one experiment to run of a figure's.
        without: the labels of algorithms that are left out, with commas between them.
    """

    seeds: int | None = None
    seconds: float | None = None
    evaluations: int | None = None
    only: str | None = None
    without: str | None = None

    def applied(self, figure: Figure) -> list[Experiment]:
        """The experiments of a figure at this scale."""
        if self.only is not None and self.only not in figure.experiments:
            raise UserError(
                f"{figure.source} has no experiment {quoted(self.only)}: choose one of "
                f"{', '.join(figure.experiments)}"
            )
        return [
            load(name).with_limits(self.seeds, self.seconds, self.evaluations, self.without)
            for name in figure.experiments
            if self.only in (None, name)
        ]


QUICK = Scale(seeds=5, seconds=1.2, evaluations=10)  # forty runs in two minutes


def reproduce(
    figure: Figure,
    folder: Path,
    command: str,
    *,
    scale: Scale = Scale(),
    notify: Notify = silent,
) -> list[Row]:
    """Run what is not yet done of a figure's experiments, and test its claims.

    Args:
        figure: one of `bilevel.lab.figures`.
        folder: gets a run folder for each experiment, raw.json.gz with what all of them measured
            and the verdicts; each run folder gets the verdicts that concern it.
        command: what the user typed, for the record.
        scale: how much to run.
        notify: called with the progress.

    Returns:
        The verdicts.

    Raises:
        UserError: an experiment's data are not there; nothing has been run then.
    """
    experiments = scale.applied(figure)
    for experiment in experiments:
        experiment.task().load(experiment.data)  # missing data are an error before any work
    for experiment in experiments:
        run_experiment(experiment, folder / experiment.name, command, notify)
    packed = pack(experiments, folder)
    write(folder / "raw.json.gz", packed)
    rows = figure.judge(evidence(packed))
    for name in packed:
        own = [row for row in rows if name in row.experiment.split(", ")]
        _write(folder / name, figure, own, command)
    _write(folder, figure, rows, command)
    return rows


@dataclass(frozen=True)
class Load:
    """What an experiment of a figure would take.

    Args:
        experiment: its name.
        runs: how many there are.
        done: how many the folder has.
        seconds: of each.
        clock: that counts them.
    """

    experiment: str
    runs: int
    done: int
    seconds: float
    clock: str

    @property
    def left(self) -> float:
        """The seconds that are left, evaluation excluded."""
        return (self.runs - self.done) * self.seconds


def loads(figure: Figure, folder: Path, scale: Scale) -> list[Load]:
    """What a figure would take; nothing is run, or written."""
    return [
        Load(
            each.name,
            each.runs,
            Folder(folder / each.name).done(each),
            each.budget.seconds or 0.0,
            each.clock,
        )
        for each in scale.applied(figure)
    ]


def _write(folder: Path, figure: Figure, rows: list[Row], command: str) -> None:
    write_json(folder / "verdicts.json", [asdict(row) for row in rows])
    write_text(folder / "verdicts.md", to_markdown(figure, rows, command))
