"""The race's harness on toy sizes: what it calls right, what it calls wrong, what it skips."""

from __future__ import annotations

import importlib
import multiprocessing
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from race import truth  # noqa: E402
from race.case import Case, relative_error  # noqa: E402
from race.contest import Contest, Contestant, Kind  # noqa: E402
from race.contestants import few_shot_learners  # noqa: E402
from race.contests import CONTESTS  # noqa: E402
from race.measuring import Score, race  # noqa: E402
from race.plot import plot  # noqa: E402
from race.problems import draw_rows, small  # noqa: E402
from race.table import COLUMNS, best_peer, table, verdict  # noqa: E402
from race.tasks import TasksCase  # noqa: E402

sys.path.remove(str(ROOT / "benchmarks"))

IMPLICIT = {"D": 8, "N": 6, "alpha": 0.5}
SAMPLED = {"D": 3, "Q": 4, "alpha": 0.1, "eta": 0.1, "beta": 10.0}
PROBLEMS = {"cleaning": (0.01, False), "penalties": (None, True)}


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.syspath_prepend(str(ROOT / "tests"))  # for the contestants below, by name


def right(case: Case) -> Callable[[], Any]:
    assert case.truth is not None
    return case.truth.copy


def wrong(case: Case) -> Callable[[], Any]:
    assert case.truth is not None
    found = case.truth * 1.01
    return lambda: found


def not_a_number(case: Case) -> Callable[[], Any]:
    return lambda: np.full(case.x_size, np.nan)


def not_installed(case: Case) -> Callable[[], Any]:
    importlib.import_module("a_package_that_nobody_has")
    raise AssertionError


def broken(case: Case) -> Callable[[], Any]:
    raise RuntimeError("no such luck")


def floor(case: Case) -> Callable[[], Any]:
    return lambda: None


def contest(*contestants: Contestant) -> Contest:
    return Contest(
        "T", "toy", lambda quick: toy("cleaning"), truth.implicit, 1e-3, contestants, 0.5, "right"
    )


def toy(kind: str, **settings: float) -> Case:
    return small({**IMPLICIT, **settings}, *PROBLEMS[kind])


def sampled(kind: str, batch: int, **settings: float) -> Case:
    case = small({**SAMPLED, **settings}, *PROBLEMS[kind])
    return replace(case, rows=draw_rows(case, 3, batch))


def local(name: str, kind: Kind = Kind.PEER) -> Contestant:
    return Contestant(name, f"{__name__}:{name}", kind)


@pytest.fixture(scope="module")
def scores() -> list[Score]:
    # Forked from a process that has loaded all that this file imports: quicker than seven anew.
    forked = multiprocessing.get_context("forkserver")
    forked.set_forkserver_preload(["race.contestants.few_shot_learners", "race.plot"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multiprocessing, "get_context", lambda kind: forked)
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        patch.syspath_prepend(str(ROOT / "tests"))
        return race(toys(), toy("cleaning"), repeats=2, threads=1, patience=60.0)


def toys() -> Contest:
    names = ("wrong", "not_a_number", "not_installed", "broken", "right")
    return contest(
        *(local(name) for name in names),
        replace(local("right", Kind.OURS), name="us"),
        local("floor", Kind.FLOOR),
    )


def score_of(scores: list[Score], name: str) -> Score:
    return next(score for score in scores if score.contestant.name == name)


def test_a_right_answer_is_ranked_with_its_times_and_memory(scores: list[Score]) -> None:
    found = score_of(scores, "right")
    assert found.qualified(toys())
    assert len(found.seconds) == 2
    assert found.error == 0
    assert found.prepared > 0


@pytest.mark.parametrize("name", ["wrong", "not_a_number"])
def test_a_wrong_answer_is_shown_but_not_ranked(scores: list[Score], name: str) -> None:
    found = score_of(scores, name)
    assert found.seconds
    assert not found.qualified(toys())
    assert best_peer(toys(), scores) is score_of(scores, "right")
    line = next(line for line in table(toys(), scores).splitlines() if f"| {name} |" in line)
    assert "disqualified: error above 0.001" in line


def test_a_missing_package_is_a_line_and_not_a_crash(scores: list[Score]) -> None:
    found = score_of(scores, "not_installed")
    assert found.excuse == "skipped: No module named 'a_package_that_nobody_has'"
    assert f"| {found.excuse} |" in table(toys(), scores)


def test_a_contestant_that_fails_is_a_line_and_not_a_crash(scores: list[Score]) -> None:
    assert score_of(scores, "broken").excuse == "failed: RuntimeError: no such luck"


def test_the_floor_has_a_time_and_no_rank(scores: list[Score]) -> None:
    found = score_of(scores, "floor")
    assert found.seconds
    assert found.error is None
    assert not found.qualified(toys())


def test_every_line_of_the_table_has_all_columns(scores: list[Score]) -> None:
    lines = [line for line in table(toys(), scores).splitlines() if line.startswith("|")]
    assert len(lines) == 2 + len(scores)
    assert {line.count("|") for line in lines} == {len(COLUMNS) + 1}


def timed(name: str, kind: Kind, seconds: float, error: float = 0.0) -> Score:
    return Score(Contestant(name, "", kind), seconds=[seconds], error=error)


@pytest.mark.parametrize(("seconds", "word"), [(0.4, "met"), (0.6, "missed")])
def test_the_verdict_compares_with_the_rival_that_is_right(seconds: float, word: str) -> None:
    scores = [
        timed("us", Kind.OURS, seconds),
        timed("right", Kind.PEER, 1.0),
        timed("right but wrong", Kind.PEER, 0.1, error=1.0),
        timed("another", Kind.PEER, 0.2),
    ]
    said = verdict(toys(), scores)
    assert said == f"Target: at most 0.5 × right. us takes {seconds:.2f} × right: {word}."


def test_a_small_ratio_has_two_digits() -> None:
    scores = [timed("us", Kind.OURS, 0.0549), timed("right", Kind.PEER, 1.0)]
    assert "us takes 0.055 × right: met" in verdict(toys(), scores)


def test_the_few_shot_contestants_find_the_same_derivative() -> None:
    case = TasksCase(size=32, steps=2, tasks=1)
    truth = few_shot_learners.truth(case)
    for contestant in (few_shot_learners.ours, few_shot_learners.one_task_at_a_time):
        assert relative_error(contestant(case)(), truth) < 1e-3


def test_a_plot_is_written(scores: list[Score], tmp_path: Path) -> None:
    plot([(toys(), scores)], tmp_path / "race.png")
    assert (tmp_path / "race.png").read_bytes().startswith(b"\x89PNG")


def answer(make: str, case: Case) -> Any:
    module, function = make.split(":")
    return getattr(importlib.import_module(f"race.contestants.{module}"), function)(case)()


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize("who", ["ours", "torch_by_hand", "torch_autograd"])
def test_implicit_contestants_give_the_truth(who: str, kind: str) -> None:
    case = toy(kind)
    assert relative_error(answer(f"{who}:implicit", case), truth.implicit(case)) < 1e-5


@pytest.mark.parametrize("who", ["ours", "torch_by_hand", "torch_autograd"])
def test_unrolled_contestants_give_the_truth(who: str) -> None:
    case = toy("cleaning", D=20)
    assert relative_error(answer(f"{who}:unrolled", case), truth.unrolled(case)) < 1e-5


STOCHASTIC = ["ours:stochastic", "ours:stochastic_given_rows", "torch_by_hand:stochastic"]


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize("who", [*STOCHASTIC, "torch_autograd:stochastic"])
def test_stochastic_contestants_work_on_the_same_rows(who: str, kind: str) -> None:
    case = sampled(kind, batch=8)
    assert relative_error(answer(who, case), truth.stochastic(case)) < 1e-5


@pytest.mark.parametrize("D", [1, 3])
@pytest.mark.parametrize("who", [*STOCHASTIC, "torch_autograd:stochastic"])
def test_truncated_products_end_at_the_same_term(who: str, D: int) -> None:
    case = sampled("cleaning", batch=1, D=D, truncated=1)
    assert relative_error(answer(who, case), truth.stochastic(case)) < 1e-5


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize("who", ["ours", "with_scipy"])
def test_accurate_contestants_come_within_one_percent(who: str, kind: str) -> None:
    case = toy(kind)
    case = case.with_truth(truth.exact(case))
    assert relative_error(answer(f"{who}:exact", case), case.truth) < 0.01


def test_the_exact_truth_is_the_limit_of_many_steps() -> None:
    case = toy("cleaning", D=3000, N=36)
    assert relative_error(truth.exact(case), truth.implicit(case)) < 1e-5


def test_the_truth_of_the_unrolled_contest_is_a_derivative() -> None:
    case = toy("cleaning", D=5)
    direction = np.random.default_rng(1).standard_normal(case.x_size)

    def value(t: float) -> float:
        losses = truth.Losses(case)
        W = truth.descend(losses, t * direction, 5, 0.5)[-1]
        Z = losses.V @ W
        log = np.log(np.exp(Z).sum(1))
        return float((log - Z[np.arange(len(Z)), case.validation_labels]).mean())

    slope = (value(1e-5) - value(-1e-5)) / 2e-5
    assert slope == pytest.approx(float(truth.unrolled(case) @ direction), rel=1e-6)


def test_every_contestant_names_a_file_of_the_race() -> None:
    for entry in CONTESTS:
        for contestant in entry.contestants:
            module, function = contestant.make.split(":")
            text = (ROOT / "benchmarks" / Path(*module.split("."))).with_suffix(".py").read_text()
            assert re.search(rf"def {function}\(case: (Tasks)?Case\)", text)
