"""The runs of one experiment, side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bilevel.errors import UserError
from bilevel.lab.comparison.quantities import AXES, METRICS, Axis, Metric
from bilevel.lab.comparison.runs import Run, Trial


@dataclass(frozen=True)
class Comparison:
    """Algorithms of one experiment with their seeds.

    Args:
        runs: the folders.
        settings: each algorithm's table, by label.
        trials: what is compared: each algorithm's seeds, by label.
        left_out: trials that have not finished.
    """

    runs: tuple[Run, ...]
    settings: dict[str, dict[str, Any]]
    trials: dict[str, tuple[Trial, ...]]
    left_out: tuple[Trial, ...]

    @property
    def experiment(self) -> dict[str, Any]:
        """The experiment that all the runs belong to."""
        return self.runs[0].experiment

    @property
    def metrics(self) -> list[Metric]:
        """Those that were measured at all."""
        return [m for m in METRICS if not all(math.isnan(end) for end in self._last(m.column))]

    @property
    def axes(self) -> list[Axis]:
        """Those along which some run has gone forward."""
        return [
            axis
            for axis in AXES
            if any(end > 0 for column in axis.columns for end in self._last(column))
        ]

    def _last(self, column: str) -> list[float]:
        return [trial.last(column) for seeds in self.trials.values() for trial in seeds]


def compare(runs: Sequence[Run], *, unfinished: bool = False) -> Comparison:
    """Put the runs of one experiment side by side.

    Args:
        runs: folders with the same data and problem; algorithms and seeds may differ.
        unfinished: take trials that are going on or crashed as far as they went.

    Raises:
        UserError: different experiments; one label with two settings; a seed twice; none finished.
    """
    for other in runs[1:]:
        _check_same_problem(runs[0], other)
    settings = _merge_settings(runs)
    trials = [trial for run in runs for trial in run.trials]
    seen: set[tuple[str, int]] = set()
    for trial in trials:
        if (trial.label, trial.seed) in seen:
            raise UserError(f"{trial.label} with seed {trial.seed} is in two of the run folders")
        seen.add((trial.label, trial.seed))
    taken = [trial for trial in trials if unfinished or trial.status is not None]
    if not taken:
        folders = ", ".join(str(run.folder) for run in runs)
        raise UserError(
            f"no run in {folders} has finished; wait, or draw what there is with --unfinished"
        )
    labels = [*settings, *sorted({trial.label for trial in taken} - settings.keys())]
    groups = {label: _seeds(label, taken) for label in labels}
    return Comparison(
        runs=tuple(runs),
        settings=settings,
        trials={label: group for label, group in groups.items() if group},
        left_out=tuple(trial for trial in trials if trial not in taken),
    )


def _seeds(label: str, trials: Sequence[Trial]) -> tuple[Trial, ...]:
    return tuple(sorted((t for t in trials if t.label == label), key=lambda trial: trial.seed))


def _check_same_problem(one: Run, two: Run) -> None:
    ours, theirs = _statement(one), _statement(two)
    for key in sorted({*ours, *theirs}):
        if ours.get(key) != theirs.get(key):
            raise UserError(
                f"{one.folder} and {two.folder} are different experiments: {key} is "
                f"{ours.get(key)!r} and {theirs.get(key)!r}; make one report for each"
            )


def _statement(run: Run) -> dict[str, Any]:
    problem = run.experiment.get("problem", {})
    return {"data": run.experiment.get("data")} | {
        f"problem.{key}": value for key, value in problem.items()
    }


def _merge_settings(runs: Sequence[Run]) -> dict[str, dict[str, Any]]:
    settings: dict[str, dict[str, Any]] = {}
    for run in runs:
        for label, table in run.settings.items():
            if settings.setdefault(label, table) != table:
                raise UserError(
                    f"the label {label!r} stands for other settings in {run.folder} "
                    "than in the folders before it; rename it in one of them"
                )
    return settings
