"""Search the settings of an experiment's algorithms on a grid.

The trials of a label are an Optuna study in a storage. Whoever opens the storage shares the
work, and what was finished stays when a process is killed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.trial import TrialState
from sqlalchemy.exc import SQLAlchemyError

from bilevel.algorithms import DoubleLoop
from bilevel.errors import UserError
from bilevel.experiments.experiment import Budget, Contestant, Experiment
from bilevel.experiments.runner import NEVER, torch_threads
from bilevel.loop import Progress, minimize
from bilevel.result import Status
from bilevel.tasks import Instance
from bilevel.tasks.few_shot import FewShot

METRIC = "validation_loss"  # what may be looked at to choose: the test rows may not
Notify = Callable[[str, float, int], None]


@dataclass(frozen=True)
class Best:
    """The best settings that were found for a label, among so many trials."""

    settings: dict[str, Any]
    loss: float
    trials: int


def sweep(
    experiment: Experiment,
    storage: str,
    trials: int | None = None,
    notify: Notify = lambda what, done, total: None,
) -> dict[str, Best]:
    """Find, for each label of the `sweep` table, the choices with the lowest validation loss.

    Each trial runs the first seed of the experiment for its budget; a run that diverges has an
    infinite loss. A part of a grid is chosen by a tree-structured Parzen estimator (Bergstra et
    al., NeurIPS 2011), which looks where earlier trials went well.

    Args:
        experiment: with a `sweep` table.
        storage: an address for Optuna, such as "sqlite:///sweep.db".
        trials: how many points of each grid to try, over all processes and all times; None is
            all of them.
        notify: told what is tried, how many trials are done, and of how many.

    Returns:
        The best settings by label.
    """
    if experiment.problem["kind"] == FewShot.kind:
        raise UserError(f"{experiment.name}: few-shot problems have no {METRIC} to choose by")
    if not experiment.sweep:
        raise UserError(f"{experiment.name} has no [sweep.LABEL] table: say what to choose from")
    task = experiment.task()
    instance = task.build(task.load(experiment.data), experiment.seeds[0])
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with torch_threads(experiment.threads):
        return {
            contestant.label: _Search(experiment, contestant, storage).go(instance, trials, notify)
            for contestant in experiment.algorithms
            if contestant.label in experiment.sweep
        }


class _Search:
    """The sweep of one label."""

    def __init__(self, experiment: Experiment, contestant: Contestant, storage: str) -> None:
        self._experiment, self._contestant = experiment, contestant
        # Optuna stores plain values only, so tables travel as text.
        self._grid = {
            setting: {_plain(choice): choice for choice in choices}
            for setting, choices in experiment.sweep[contestant.label].items()
        }
        space = {setting: list(choices) for setting, choices in self._grid.items()}
        self._whole = optuna.samplers.GridSampler(space, seed=0)
        self._size = math.prod(map(len, space.values()))
        self._study = _open(f"{experiment.name}/{contestant.label}", storage)
        self._check_same()

    def go(self, instance: Instance, trials: int | None, notify: Notify) -> Best:
        goal = self._size if trials is None else min(trials, self._size)
        seed = len(self._study.get_trials(deepcopy=False))  # another for who comes later
        part = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
        self._study.sampler = self._whole if goal == self._size else part
        name = f"{self._experiment.name}: {self._contestant.label}"
        while (done := len(self._complete())) < goal:
            notify(name, done, goal)
            self._study.optimize(lambda trial: self._loss(trial, instance), n_trials=1)
        notify(name, goal, goal)
        found = self._study.best_trial
        return Best(self._chosen(found.params), float(found.value or 0.0), len(self._complete()))

    def _loss(self, trial: optuna.Trial, instance: Instance) -> float:
        params = {
            setting: trial.suggest_categorical(setting, list(choices))
            for setting, choices in self._grid.items()
        }
        if any(earlier.params == params for earlier in self._complete()):
            raise optuna.TrialPruned("this point was tried before")
        algorithm = self._contestant.make(**self._chosen(params))
        seed = self._experiment.seeds[0]
        return loss_after(instance, algorithm, seed, self._experiment.budget)

    def _chosen(self, params: dict[str, Any]) -> dict[str, Any]:
        return {setting: self._grid[setting][value] for setting, value in params.items()}

    def _complete(self) -> list[optuna.trial.FrozenTrial]:
        return self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))

    def _check_same(self) -> None:
        """Trials under another budget or on another problem cannot be compared."""
        table = self._experiment.resolved().model_dump(include={"data", "problem", "budget"})
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


def loss_after(instance: Instance, algorithm: DoubleLoop, seed: int, budget: Budget) -> float:
    """The validation loss where a run stands when its budget is spent; infinite if it diverged."""
    problem = instance.problem
    last = problem.x_structure.unflatten(problem.x0), problem.y_structure.unflatten(problem.y0)

    def keep(progress: Progress) -> None:
        nonlocal last
        if budget.seconds is None or progress.record.seconds <= budget.seconds:
            last = progress.x, progress.y

    result = minimize(
        problem,
        algorithm,
        steps=budget.steps or NEVER,
        seconds=budget.seconds,
        seed=seed,
        callbacks=[keep],
        evaluate_every=NEVER,
    )
    loss = instance.measure(*last)[METRIC]
    return loss if math.isfinite(loss) and result.status != Status.DIVERGED else math.inf


def _open(name: str, storage: str) -> optuna.Study:
    try:
        return optuna.create_study(
            study_name=name,
            storage=storage,
            direction="minimize",
            load_if_exists=True,
        )
    except (SQLAlchemyError, ValueError, ImportError) as error:
        raise UserError(
            f"cannot open the storage {storage!r}: {str(error).splitlines()[0]}. Give an address "
            "such as sqlite:///sweep.db, in a folder that exists"
        ) from error


def _plain(choice: Any) -> Any:
    return json.dumps(choice) if isinstance(choice, dict | list) else choice
