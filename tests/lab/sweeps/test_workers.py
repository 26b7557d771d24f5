"""Sweeps by several processes: every point is done once, whoever is killed."""

from __future__ import annotations

import json
import os
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

from bilevel.lab.sweeps import shared_trials as module
from bilevel.lab.sweeps.shared_trials import Pulse, SharedTrials
from bilevel.lab.sweeps.storage import opened

from ...cli.signalled import begin
from ...truth import forked
from ..experiments.small_experiments import tiny_toml

CHOICES: dict[str, list[Any]] = {"a": [1, 2, 3], "b": ["x", "y"]}
PATIENT, DEAF = Pulse(every=60, silence=1e9), Pulse(every=60, silence=0)


@pytest.fixture
def study(tmp_path: Path) -> Iterator[optuna.Study]:
    with opened(f"sqlite:///{tmp_path / 'sweep.db'}") as storage:
        yield optuna.create_study(storage=storage)


def worker(study: optuna.Study, goal: int = 6, pulse: Pulse = PATIENT) -> SharedTrials:
    return SharedTrials(study._storage, study._study_id, CHOICES, goal, pulse)


def points(trials: list[FrozenTrial]) -> list[tuple[Any, ...]]:
    return sorted(tuple(trial.params.values()) for trial in trials)


def finish(shared: SharedTrials, value: float = 1.0) -> None:
    claim = shared.claim()
    assert claim is not None
    claim.finish(value)


@pytest.mark.parametrize("goal", [4, 6])
def test_two_workers_never_hold_the_same_point(study: optuna.Study, goal: int) -> None:
    one, two = worker(study, goal), worker(study, goal)
    claims = [shared.claim() for _ in range(goal // 2) for shared in (one, two)]
    assert len({str(claim.params) for claim in claims if claim}) == goal
    assert one.claim() is None  # all are in work
    for number, claim in enumerate(claims):
        assert claim is not None
        claim.finish(float(number))
    assert len(set(points(one.done()))) == goal == len(study.trials)


@pytest.mark.parametrize(("goal", "done", "other"), [(6, 0, 0), (1, 0, -1), (3, 2, -1)])
def test_of_two_claims_at_once_the_first_holds(
    study: optuna.Study, monkeypatch: pytest.MonkeyPatch, goal: int, done: int, other: int
) -> None:
    """Also where they are for two points, but only one more is wanted."""
    one, two = worker(study, goal), worker(study, goal)
    for _ in range(done):
        finish(one)
    monkeypatch.setattr(one, "_choose", lambda free, live: free[0])
    monkeypatch.setattr(two, "_choose", lambda free, live: free[other])
    create, others = study._storage.create_new_trial, []

    def overtaken(*arguments: Any) -> int:
        monkeypatch.setattr(study._storage, "create_new_trial", create)
        others.append(two.claim())
        return create(*arguments)

    monkeypatch.setattr(study._storage, "create_new_trial", overtaken)
    assert one.claim() is None
    assert others[0] is not None
    assert len(study.get_trials(states=(TrialState.RUNNING,))) == 1


def foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_place", lambda: "another machine")


def test_a_silent_worker_elsewhere_is_taken_for_dead_and_its_value_is_not_counted(
    study: optuna.Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as elsewhere:
        foreign(elsewhere)
        lost = worker(study, goal=1).claim()
    assert lost is not None
    here = worker(study, goal=1, pulse=DEAF)
    assert here.claim() is None  # it may be at work: who knows
    again = here.claim()
    assert again is not None
    lost.finish(5.0)
    again.finish(7.0)
    assert [trial.value for trial in here.done()] == [7.0]


def test_a_worker_elsewhere_that_gives_signs_of_life_keeps_its_point(
    study: optuna.Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as elsewhere:
        foreign(elsewhere)
        busy = worker(study, goal=1, pulse=Pulse(every=0.001))
        claim = busy.claim()
    assert claim is not None
    here = worker(study, goal=1, pulse=DEAF)
    with busy.beating(claim):
        for _ in range(2):
            before = study.trials[0].user_attrs.get("beats")
            assert here.claim() is None
            while study.trials[0].user_attrs.get("beats") == before:
                pass
    claim.finish(1.0)
    assert len(here.done()) == len(study.trials) == 1


def test_a_process_is_known_by_its_birth_and_not_by_its_number_alone(study: optuna.Study) -> None:
    here, parent = module._place(), os.getppid()
    for born in (module._born(parent), "0"):  # the second had the number before
        attributes = {"worker": {"place": here, "process": parent, "born": born}}
        study.add_trial(optuna.create_trial(state=TrialState.RUNNING, user_attrs=attributes))
    worker(study).claim()
    states = [trial.state for trial in study.trials]
    assert states == [TrialState.RUNNING, TrialState.FAIL, TrialState.RUNNING]


def test_a_process_that_was_killed_is_dead_before_its_exit_code_is_asked_for() -> None:
    assert module._born(os.getpid()) is not None
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert module._born(child) is None
    os.waitpid(child, 0)
    assert module._born(child) is None


def test_a_point_that_is_done_twice_counts_once(study: optuna.Study) -> None:
    claim = worker(study).claim()
    assert claim is not None
    claim.finish(3.0)
    study.add_trial(
        optuna.create_trial(
            params=claim.params, distributions=study.trials[0].distributions, value=1.0
        )
    )
    assert [trial.value for trial in worker(study).done()] == [3.0]


def test_what_may_have_killed_its_worker_is_tried_last(study: optuna.Study) -> None:
    shared = worker(study)
    deadly = shared.claim()
    assert deadly is not None
    deadly.withdraw()
    tried = [shared.claim() for _ in range(6)]
    assert [claim.params for claim in tried if claim][-1] == deadly.params


SERVER = os.environ.get("BILEVEL_TEST_POSTGRESQL")  # the address of an empty database
KILLS = 5


@pytest.mark.skipif(os.name != "posix", reason="processes are forked")
@pytest.mark.parametrize("goal", [9, 5], ids=["whole", "part"])
@pytest.mark.parametrize(
    "address",
    [
        "sqlite:///{folder}/sweep.db",
        pytest.param(SERVER, marks=pytest.mark.skipif(SERVER is None, reason="no server")),
    ],
    ids=["sqlite", "postgresql"],
)
def test_with_workers_killed_all_the_time_every_point_is_done_once(
    tmp_path: Path, address: str, goal: int
) -> None:
    storage, name = address.format(folder=tmp_path), f"sweep-{goal}-{uuid.uuid4()}"
    arguments = [storage, name, str(KILLS), *(["5"] if goal == 5 else [])]
    script = Path(__file__).with_name("killed_sweeps.py")
    run = forked.begin(tmp_path, str(script), *arguments).end()
    assert run.code == 0, run.err
    told = json.loads(run.out)
    assert told["left"] >= 3  # the others may have been done before they could be killed
    with opened(storage) as store:
        study = optuna.load_study(study_name=f"{name}/stoc", storage=store)
        trials, best = study.trials, study.best_trial
    done = points([trial for trial in trials if trial.state == TrialState.COMPLETE])
    assert len(set(done)) == len(done) == goal
    states = Counter(trial.state for trial in trials)
    assert states[TrialState.RUNNING] == 0
    assert states[TrialState.FAIL] >= told["left"]
    assert [found for found in told["found"] if found != [best.params, best.value, goal]] == []


def test_two_commands_share_the_work_and_find_the_same(tmp_path: Path) -> None:
    grid = {"stoc": {"inner_lr": [0.1, 1.0]}}
    (tmp_path / "tiny.toml").write_text(tiny_toml(sweep=grid))
    both = [begin(tmp_path, "sweep", "tiny.toml") for _ in range(2)]
    ended = [command.end() for command in both]
    assert [shown.code for shown in ended] == [0, 0], ended
    assert ended[0].out == ended[1].out
    assert "in 2 trials with inner_lr = " in ended[0].out
