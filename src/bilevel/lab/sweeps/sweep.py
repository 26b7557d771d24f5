"""Search the settings of an experiment's algorithms on a grid.

The trials of a label are an Optuna study in a storage. All processes that open the storage share
the work. If one is killed, finished trials stay, and another process repeats the unfinished one.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.storages import BaseStorage

from bilevel.algorithms import Algorithm
from bilevel.errors import UserError
from bilevel.lab.experiments.experiment import Budget, Contestant, Experiment
from bilevel.lab.experiments.runner import CLOCKS, minimize_within, torch_threads, warm_up
from bilevel.lab.notify import Notify, silent
from bilevel.lab.quantities import LOSS
from bilevel.lab.sweeps.shared_trials import Pulse, SharedTrials
from bilevel.lab.sweeps.storage import opened
from bilevel.lab.tasks import Instance
from bilevel.runs.progress import Progress
from bilevel.runs.result import Status

METRIC = LOSS.column  # what may be looked at to choose: the test rows may not
_PAUSE = 0.2  # seconds between two looks at what others do


@dataclass(frozen=True)
class Best:
    """The best settings that were found for a label, and in how many trials."""

    settings: dict[str, Any]
    loss: float
    trials: int


def sweep(
    experiment: Experiment,
    storage: str,
    trials: int | None = None,
    notify: Notify = silent,
    pulse: Pulse = Pulse(),  # noqa: B008 - it cannot be changed
) -> dict[str, Best]:
    """Find, for each label of the `sweep` table, the choices with the lowest validation loss.

    Each trial runs the first seed of the experiment for its budget; a run that diverges has an
    infinite loss. If only a part of a grid is tried, a tree-structured Parzen estimator (Bergstra
    et al., NeurIPS 2011) chooses points near earlier good ones. The function returns when all
    trials are done: at the end it waits for the other processes, and takes over their trials if
    they are killed.

    Args:
        experiment: with a `sweep` table.
        storage: an address for Optuna: a file for the processes of one machine, such as
            "sqlite:///sweep.db", or a server for many, "postgresql://USER@HOST/DATABASE".
        trials: how many points of each grid to try, over all processes and all times; None is
            all of them.
        notify: called with what is tried, how many trials are done, and of how many.
        pulse: how processes on other machines show that they are alive.

    Returns:
        The best settings by label.
    """
    if not experiment.sweep:
        raise UserError(f"{experiment.name} has no [sweep.LABEL] table: say what to choose from")
    task = experiment.task()
    if not task.has_validation:
        raise UserError(f"{experiment.name}: {task.kind} problems have no {METRIC} to choose by")
    instance = task.build(task.load(experiment.data), experiment.seeds[0])
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with torch_threads(experiment.threads), opened(storage) as store:
        return {
            contestant.label: _Search(experiment, contestant, store, pulse).go(
                instance, trials, notify
            )
            for contestant in experiment.algorithms
            if contestant.label in experiment.sweep
        }


class _Search:
    """The sweep of one label."""

    def __init__(
        self, experiment: Experiment, contestant: Contestant, storage: BaseStorage, pulse: Pulse
    ) -> None:
        self._experiment, self._contestant = experiment, contestant
        self._storage, self._pulse = storage, pulse
        # Optuna stores plain values only, so tables travel as text.
        self._grid = {
            setting: {_plain(choice): choice for choice in choices}
            for setting, choices in experiment.sweep[contestant.label].items()
        }
        name = f"{experiment.name}/{contestant.label}"
        self._study = optuna.create_study(
            study_name=name, storage=storage, direction="minimize", load_if_exists=True
        )
        self._check_same()

    def go(self, instance: Instance, trials: int | None, notify: Notify) -> Best:
        size = math.prod(map(len, self._grid.values()))
        goal = size if trials is None else min(trials, size)
        shared = self._shared(goal)
        name = f"{self._experiment.name}: {self._contestant.label}"
        while len(done := shared.done()) < goal:
            notify(name, len(done), goal)
            claim = shared.claim()
            if claim is None:
                time.sleep(_PAUSE)  # until others have done, or left, what is in their hands
                continue
            try:
                with shared.beating(claim):
                    value = self._loss(claim.params, instance)
            except BaseException:
                claim.withdraw()
                raise
            claim.finish(value)
        notify(name, goal, goal)
        best = min(done, key=lambda trial: float(trial.value or 0.0))
        return Best(self._chosen(best.params), float(best.value or 0.0), len(done))

    def _shared(self, goal: int) -> SharedTrials:
        choices = {setting: list(values) for setting, values in self._grid.items()}
        study = self._storage.get_study_id_from_name(self._study.study_name)
        return SharedTrials(self._storage, study, choices, goal, self._pulse)

    def _loss(self, params: dict[str, Any], instance: Instance) -> float:
        algorithm = self._contestant.make(**self._chosen(params))
        clock = CLOCKS[self._experiment.clock]
        seed, budget = self._experiment.seeds[0], self._experiment.budget
        return loss_after(instance, algorithm, seed, budget, clock)

    def _chosen(self, params: dict[str, Any]) -> dict[str, Any]:
        return {setting: self._grid[setting][value] for setting, value in params.items()}

    def _check_same(self) -> None:
        """Trials under another budget or on another problem cannot be compared."""
        table = self._experiment.resolved().model_dump(
            include={"data", "problem", "budget", "clock"}
        )
        grid, settings = self._experiment.sweep[self._contestant.label], self._contestant.settings
        fixed = {name: value for name, value in settings.items() if name not in grid}
        table |= {"algorithm": self._contestant.name, "settings": fixed, "grid": grid}
        ours = json.dumps({**table, "seed": self._experiment.seeds[0]}, sort_keys=True)
        theirs = self._study.user_attrs.get("experiment", ours)
        if theirs != ours:
            raise UserError(
                f"the storage has trials of {self._study.study_name} with another problem, "
                "budget, seed, settings or grid: choose another --storage"
            )
        self._study.set_user_attr("experiment", ours)


def loss_after(
    instance: Instance,
    algorithm: Algorithm,
    seed: int,
    budget: Budget,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """The validation loss where a run stands when its budget is spent; infinite if it diverged.

    What is compiled at first use is compiled before the clock starts.
    """
    problem = instance.problem
    last = problem.x_structure.unflatten(problem.x0), problem.y_structure.unflatten(problem.y0)

    def keep(progress: Progress) -> None:
        nonlocal last
        if budget.seconds is None or progress.record.seconds <= budget.seconds:
            last = progress.x, progress.y

    if budget.seconds is not None:
        warm_up(problem, algorithm, seed)
    result = minimize_within(budget, problem, algorithm, seed, [keep], clock=clock)
    loss = instance.measure(*last)[METRIC]
    return loss if math.isfinite(loss) and result.status != Status.DIVERGED else math.inf


def _plain(choice: Any) -> Any:
    return json.dumps(choice) if isinstance(choice, dict | list) else choice
