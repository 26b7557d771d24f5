"""Sweeps: the best of a grid, kept when it is broken off."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest

from bilevel.datasets import load as load_data
from bilevel.errors import UserError
from bilevel.lab.experiments.experiment import Budget, Experiment
from bilevel.lab.experiments.runner import torch_threads
from bilevel.lab.sweeps import sweep as module
from bilevel.lab.sweeps.sweep import loss_after, sweep

from ..experiments.small_experiments import tiny

GRID = {"stoc": {"inner_lr": [0.1, 1.0], "outer_lr": [0.1, 1.0]}}
LOSSES = {(0.1, 0.1): 4.0, (0.1, 1.0): 3.0, (1.0, 0.1): 1.0, (1.0, 1.0): math.inf}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As in the experiments: another number of threads gives other last digits."""
    with torch_threads(1):
        yield


def address(folder: Path) -> str:
    return f"sqlite:///{folder / 'sweep.db'}"


def trials(folder: Path, study: str = "tiny/stoc") -> list[optuna.trial.FrozenTrial]:
    return optuna.load_study(study_name=study, storage=address(folder)).get_trials()


@pytest.fixture
def known_losses(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float]]:
    """Trials whose losses are known; the points that were tried are kept."""
    tried: list[tuple[float, float]] = []

    def loss(instance: Any, algorithm: Any, seed: int, budget: Budget, clock: Any) -> float:
        point = algorithm.inner_lr, algorithm.outer.lr
        tried.append(point)
        return LOSSES[point]

    monkeypatch.setattr(module, "loss_after", loss)
    return tried


def test_a_sweep_tries_the_whole_grid_once_and_finds_the_lowest_loss(
    tmp_path: Path, known_losses: list[tuple[float, float]]
) -> None:
    told: list[tuple[str, float, int]] = []
    found = sweep(tiny(sweep=GRID), address(tmp_path), notify=lambda *news: told.append(news))
    assert sorted(known_losses) == sorted(LOSSES)
    assert found["stoc"].settings == {"inner_lr": 1.0, "outer_lr": 0.1}
    assert (found["stoc"].loss, found["stoc"].trials) == (1.0, 4)
    assert told[0] == ("tiny: stoc", 0, 4)
    assert told[-1] == ("tiny: stoc", 4, 4)


def test_a_sweep_that_is_complete_runs_nothing(
    tmp_path: Path, known_losses: list[tuple[float, float]]
) -> None:
    first = sweep(tiny(sweep=GRID), address(tmp_path))
    again = sweep(tiny(sweep=GRID), address(tmp_path))
    assert first == again
    assert len(known_losses) == 4


def test_a_number_of_trials_holds_for_all_times_together(
    tmp_path: Path, known_losses: list[tuple[float, float]]
) -> None:
    sweep(tiny(sweep=GRID), address(tmp_path), trials=2)
    found = sweep(tiny(sweep=GRID), address(tmp_path), trials=3)
    assert found["stoc"].trials == len(trials(tmp_path)) == 3
    assert len(known_losses) == len(set(known_losses))  # a point is never run twice


def test_choices_may_be_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def loss(instance: Any, algorithm: Any, seed: int, budget: Budget, clock: Any) -> float:
        return float(algorithm.inner.tol)

    monkeypatch.setattr(module, "loss_after", loss)
    solvers = [{"solver": "LBFGS", "tol": 0.1}, {"solver": "NewtonCG", "tol": 0.01}]
    found = sweep(tiny(sweep={"hoag": {"inner": solvers}}), address(tmp_path))
    assert found["hoag"].settings == {"inner": solvers[1]}


@pytest.mark.parametrize(
    "changed",
    [
        {"budget": {"steps": 9}},
        {"seeds": [3]},
        {"sweep": {"stoc": {**GRID["stoc"], "inner_lr": [0.1, 2.0]}}},
    ],
)
def test_other_trials_do_not_mix(
    tmp_path: Path, known_losses: list[tuple[float, float]], changed: dict[str, Any]
) -> None:
    sweep(tiny(sweep=GRID), address(tmp_path), trials=1)
    with pytest.raises(UserError, match="choose another --storage"):
        sweep(tiny(**{"sweep": GRID, **changed}), address(tmp_path), trials=1)


def test_the_best_settings_may_be_written_into_the_experiment_and_the_sweep_go_on(
    tmp_path: Path, known_losses: list[tuple[float, float]]
) -> None:
    experiment = tiny(sweep=GRID)
    found = sweep(experiment, address(tmp_path), trials=2)
    sweep(experiment.with_settings("stoc", found["stoc"].settings), address(tmp_path))
    assert sorted(known_losses) == sorted(LOSSES)


def test_mistakes_are_explained(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no \[sweep.LABEL\] table"):
        sweep(tiny(), address(tmp_path))
    for storage in ("nonsense", f"sqlite:///{tmp_path / 'absent' / 'sweep.db'}"):
        with pytest.raises(UserError, match=r"cannot open the storage .*sqlite:///sweep\.db"):
            sweep(tiny(sweep=GRID), storage)


def test_a_problem_without_validation_rows_is_refused_before_its_data_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BILEVEL_DATA", str(tmp_path))
    experiment = tiny(data="fc100", problem={"kind": "few-shot"}, sweep=GRID)
    with pytest.raises(UserError, match="few-shot problems have no validation_loss"):
        sweep(experiment, address(tmp_path))


def test_a_missing_driver_is_named_with_the_command_and_without_the_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(UserError, match=r'pip install "psycopg\[binary\]"') as caught:
        sweep(tiny(sweep=GRID), "postgresql+psycopg://ada:secret@nowhere/sweeps")
    assert "ada:***@nowhere" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_storage_that_fails_in_the_middle_is_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unplug(*_: Any) -> float:
        (tmp_path / "sweep.db").write_text("no database any more" * 1000)
        return 1.0

    monkeypatch.setattr(module, "loss_after", unplug)
    with pytest.raises(UserError, match=r"failed: .*not a database.*run the same command again"):
        sweep(tiny(sweep=GRID), address(tmp_path))


def _instance_and_algorithm(experiment: Experiment, **changes: Any) -> Any:
    instance = experiment.task().build(load_data("digits"), 0)
    return instance, experiment.algorithms[0].make(**changes)


def test_the_loss_of_a_trial_is_that_of_the_last_step() -> None:
    instance, algorithm = _instance_and_algorithm(tiny())
    four, eight = (loss_after(instance, algorithm, 0, Budget(steps=n)) for n in (4, 8))
    assert eight < four < math.log(10)


def test_a_step_that_ends_too_late_does_not_count() -> None:
    instance, algorithm = _instance_and_algorithm(tiny())
    loss = loss_after(instance, algorithm, 0, Budget(seconds=1e-9))
    assert loss == pytest.approx(math.log(10), rel=1e-5)  # where it started


def test_a_trial_that_diverges_has_an_infinite_loss() -> None:
    instance, algorithm = _instance_and_algorithm(tiny(), inner_lr=1e30)
    assert loss_after(instance, algorithm, 0, Budget(steps=50)) == math.inf


class Killed(BaseException):
    pass


def test_a_sweep_that_is_broken_off_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known_losses: list[tuple[float, float]]
) -> None:
    working = module.loss_after

    def die_at_the_third(*arguments: Any) -> float:
        if len(known_losses) == 2:
            raise Killed
        return working(*arguments)

    monkeypatch.setattr(module, "loss_after", die_at_the_third)
    with pytest.raises(Killed):
        sweep(tiny(sweep=GRID), address(tmp_path))
    kept = {trial.number: trial.value for trial in trials(tmp_path)}
    monkeypatch.setattr(module, "loss_after", working)
    found = sweep(tiny(sweep=GRID), address(tmp_path))
    assert found["stoc"].settings == {"inner_lr": 1.0, "outer_lr": 0.1}
    assert sorted(known_losses) == sorted(LOSSES)  # the two that were finished are not run again
    after = {trial.number: trial.value for trial in trials(tmp_path)}
    assert all(after[number] == value for number, value in kept.items() if value is not None)
