"""`bilevel few-shot train`: what it computes and keeps, also when it is broken off."""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bilevel
from bilevel.apps.few_shot import training, training_job
from bilevel.apps.few_shot.methods import find, methods
from bilevel.apps.few_shot.run_folder import Limits, RunFolder
from bilevel.apps.few_shot.settings import settle
from bilevel.cli.bars import TrainingBar
from bilevel.datasets import load_images
from bilevel.problem.peers import Peers
from bilevel.runs.checkpoints.keeper import FolderKeeper

from ...oracles.distributed.threads import together
from .few_shot_pictures import SMALL, Command, Shown, small


@pytest.fixture
def few_shot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    monkeypatch.setattr(training_job, "write_training_page", lambda *_: None)  # takes its time
    return Command(tmp_path, monkeypatch, capsys)


def assert_same(one: Any, two: Any) -> None:
    """The same bits, in whatever is nested."""
    assert type(one) is type(two)
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, two)
    elif isinstance(one, tuple | list):
        assert len(one) == len(two)
        for mine, other in zip(one, two, strict=True):
            assert_same(mine, other)
    elif isinstance(one, dict):
        assert one.keys() == two.keys()
        for key in one:
            if key != "seconds":
                assert_same(one[key], two[key])
    else:
        assert one == two


Kept = tuple[list[dict[str, Any]], dict[str, Any], dict[str, Any], dict[str, Any]]


def kept(few_shot: Command, run: str = "run") -> Kept:
    """All that a training leaves behind."""
    files = (few_shot.content(f"{run}/{name}.pt") for name in ("last", "best"))
    return few_shot.history(run), *files, few_shot.kept(run)["past"]["state"]


@pytest.fixture(scope="module")
def known() -> dict[tuple[str, ...], Kept]:
    return {}


@pytest.fixture
def unbroken(few_shot: Command, known: dict[tuple[str, ...], Kept]) -> Callable[..., Kept]:
    """What a training leaves behind that nothing disturbs."""

    def train(*options: str) -> Kept:
        if options not in known:
            few_shot.train(*options, "--output", "whole")
            known[options] = kept(few_shot, "whole")
        return known[options]

    return train


# What a training keeps


@pytest.mark.parametrize("name", methods())
def test_a_checkpoint_gives_the_accuracy_that_was_written_down(
    few_shot: Command, name: str
) -> None:
    few_shot.train("--algorithm", name, "--steps", "3")
    first, last = few_shot.history()
    assert (first["step"], last["step"]) == (2, 3)
    for split in ("train", "validation") if name == "itd-bio" else ("validation",):
        few_shot.good(
            *("evaluate", "run/last.pt", "--split", split, "--tasks", "3", "--json", "e.json")
        )
        found = few_shot.json("e.json")
        assert found["accuracy"] == last[f"{split}_accuracy"]
        assert found["interval"] == last[f"{split}_interval"]


def test_the_best_model_is_that_of_the_first_highest_validation_accuracy(
    few_shot: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = iter([0.1, 0.3, 0.1, 0.6, 0.1, 0.6, 0.1, 0.2])  # train and validation, in turn

    def given(*_: Any, **__: Any) -> bilevel.few_shot.Accuracy:
        return bilevel.few_shot.Accuracy(next(found), 0.01, 3)

    with monkeypatch.context() as patch:
        patch.setattr(training, "accuracy", given)
        shown = few_shot.train("--steps", "8")
    best = few_shot.content("run/best.pt")
    assert (best["step"], best["accuracy"]) == (4, [0.6, 0.01])
    assert few_shot.content()["step"] == 8
    assert "best validation accuracy: 60.00 ± 1.00 % over 3 tasks, at step 4" in shown.out
    few_shot.train("--steps", "4", "--output", "short")
    assert_same(best["x"], few_shot.content("short/last.pt")["x"])


# Broken off


class PowerFailureError(Exception):
    """Nothing that the code expects."""


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def fail() -> None:
    raise PowerFailureError


def break_off(
    few_shot: Command, owner: Any, name: str, at: int, how: Callable[[], None], *options: str
) -> Shown | None:
    """Train until the at-th call of a method."""
    real, calls = getattr(owner, name), 0

    def failing(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at:
            how()
        return real(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, failing)
        if how is press_ctrl_c:
            return few_shot("train", *small(*options))
        with pytest.raises(PowerFailureError):
            few_shot("train", *small(*options))
        return None


@pytest.mark.parametrize("every", [0.0, training._SAVE_SECONDS], ids=["often", "seldom"])
@pytest.mark.parametrize(
    ("name", "owner", "method", "at", "how"),
    [
        ("itd-bio", TrainingBar, "stepped", 3, press_ctrl_c),  # between two validations
        ("itd-bio", TrainingBar, "measuring", 3, press_ctrl_c),  # in a validation
        ("itd-bio", TrainingBar, "measuring", 5, press_ctrl_c),  # in the last
        ("itd-bio", TrainingBar, "stepped", 4, fail),
        ("itd-bio", TrainingBar, "stepped", 1, fail),  # before a step was kept
        ("itd-bio", FolderKeeper, "is_due", 4, fail),  # when the history is ahead of what is kept
        ("itd-bio", RunFolder, "save", 2, fail),  # and when it is ahead of the models
        ("aid-bio-increasing", TrainingBar, "stepped", 4, press_ctrl_c),
        ("anil", TrainingBar, "stepped", 4, fail),
        ("maml", TrainingBar, "stepped", 4, press_ctrl_c),
    ],
)
def test_a_training_that_was_broken_off_ends_with_the_bits_of_one_that_was_not(
    few_shot: Command,
    unbroken: Callable[..., Kept],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    owner: Any,
    method: str,
    at: int,
    how: Callable[[], None],
    every: float,
) -> None:
    monkeypatch.setattr(training, "_SAVE_SECONDS", every)
    few = () if name == "aid-bio-increasing" else ("--inner-steps", "2")
    options = ("--algorithm", name, "--steps", "6", *few)
    break_off(few_shot, owner, method, at, how, *options)
    assert [line["step"] for line in few_shot.history("run")] != [2, 4, 6]
    few_shot.train(*options)
    assert_same(kept(few_shot), unbroken(*options))


def test_losses_before_a_break_count_after_it(
    few_shot: Command, monkeypatch: pytest.MonkeyPatch, unbroken: Callable[..., Kept]
) -> None:
    monkeypatch.setattr(training, "_LOSS_EVERY", 1)
    options = ("--steps", "4", "--validate-every", "4")
    break_off(few_shot, TrainingBar, "stepped", 2, press_ctrl_c, *options)
    assert few_shot.content()["step"] == 2
    few_shot.train(*options)
    assert_same(kept(few_shot), unbroken(*options))


def test_what_the_history_holds_is_what_the_checkpoint_says(
    few_shot: Command, unbroken: Callable[..., Kept]
) -> None:
    options = ("--algorithm", "itd-bio", "--steps", "6", "--inner-steps", "2")
    break_off(few_shot, TrainingBar, "stepped", 4, fail, *options)
    with (few_shot.folder / "run" / "history.jsonl").open("a") as file:
        file.write('{"step": 4, "seco')
    few_shot.train(*options)
    assert_same(kept(few_shot), unbroken(*options))


@pytest.mark.parametrize("method", ["stepped", "measuring"])
def test_ctrl_c_keeps_the_last_step_and_says_how_to_go_on(few_shot: Command, method: str) -> None:
    at = {"stepped": 4, "measuring": 3}[method]
    shown = break_off(few_shot, TrainingBar, method, at, press_ctrl_c, "--steps", "5")
    assert shown is not None
    assert shown.code == 130
    assert "stopped after step 4, which is kept in run/last.pt" in shown.err
    assert "to go on: bilevel few-shot train --data fc100" in shown.err
    assert few_shot.content()["step"] == 4
    assert [line["step"] for line in few_shot.history()] == [2]  # it did not wait for the other
    assert "continuing from step 4 in run" in few_shot.train("--steps", "5").err


def test_ctrl_c_before_the_first_step_keeps_nothing(few_shot: Command) -> None:
    shown = break_off(few_shot, RunFolder, "open", 1, press_ctrl_c)
    assert shown is not None
    assert shown.code == 130
    assert "before the first step was done" in shown.err
    assert not (few_shot.folder / "run/last.pt").exists()
    few_shot.train("--steps", "2")


def test_a_minute_is_the_most_that_a_crash_can_cost(
    few_shot: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert training._SAVE_SECONDS <= 60
    monkeypatch.setattr(training, "_SAVE_SECONDS", 0.0)
    options = ("--steps", "6", "--validate-every", "6")
    break_off(few_shot, TrainingBar, "stepped", 5, fail, *options)
    assert few_shot.kept()["past"]["state"]["step"] == 4


# Going on


def test_more_steps_go_on_where_a_training_ended(
    few_shot: Command, unbroken: Callable[..., Kept]
) -> None:
    options = ("--algorithm", "itd-bio", "--inner-steps", "2", "--steps")
    few_shot.train(*options, "3")
    few_shot.train(*options, "6")
    assert_same(few_shot.content()["x"], unbroken(*options, "6")[1]["x"])
    assert [line["step"] for line in few_shot.history()] == [2, 3, 4, 6]


def test_a_training_that_has_ended_is_left_as_it_is(few_shot: Command) -> None:
    first = few_shot.train("--steps", "4")
    before = contents(few_shot.folder / "run")
    again = few_shot.train("--steps", "4")
    assert again.out == "It had already ended; use more --steps to continue.\n" + first.out
    assert contents(few_shot.folder / "run") == before


def contents(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_training_of_the_version_before_can_be_evaluated_but_not_gone_on_with(
    few_shot: Command,
) -> None:
    few_shot.train("--steps", "2")
    run = few_shot.folder / "run"
    torch.save({**few_shot.content(), "point": {"seconds": 1.0}}, run / "last.pt")
    shutil.rmtree(run / "checkpoint")
    few_shot.good("evaluate", "run/last.pt", "--tasks", "2")
    shown = few_shot("train", *SMALL, "--steps", "4")
    assert shown.code == 2
    assert "holds no few-shot training that this version can go on with" in shown.err


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that shows one second more each time that it is looked at."""
    clock = itertools.count()
    timed = functools.partial(bilevel.minimize, clock=lambda: float(next(clock)))
    monkeypatch.setattr(training, "minimize", timed)


@pytest.mark.usefixtures("ticking")
def test_when_time_is_up_the_last_model_is_measured_and_a_longer_training_does_not_know(
    few_shot: Command, unbroken: Callable[..., Kept]
) -> None:
    options = ("--algorithm", "itd-bio", "--steps", "6", "--inner-steps", "2")
    first = few_shot.train(*options, "--seconds", "30")
    done = few_shot.content()["step"]
    assert 0 < done < 6
    assert few_shot.history()[-1]["step"] == done
    again = few_shot.train(*options, "--seconds", "30")
    assert again.out.splitlines()[1:] == first.out.splitlines()[1:]
    few_shot.train(*options)
    assert_same(few_shot.history(), unbroken(*options)[0])
    assert_same(few_shot.content()["x"], unbroken(*options)[1]["x"])


def test_a_time_in_which_no_step_can_be_done_is_told(few_shot: Command) -> None:
    for _ in range(2):
        shown = few_shot("train", *SMALL, "--steps", "6", "--seconds", "1e-9")
        assert shown.code == 1
        assert "no step was done in that time: allow more --seconds" in shown.err
    few_shot.train("--steps", "2")


@pytest.mark.usefixtures("ticking")
def test_what_was_stopped_at_its_last_measurement_is_measured_when_it_goes_on(
    few_shot: Command,
) -> None:
    options = ("--steps", "1")
    shown = break_off(few_shot, TrainingBar, "measuring", 1, press_ctrl_c, *options)
    assert shown is not None
    assert shown.code == 130
    assert few_shot.history() == []
    assert "best validation accuracy" in few_shot.train(*options).out
    assert [line["step"] for line in few_shot.history()] == [1]


@pytest.mark.parametrize(
    ("split", "told"),
    [
        ("train", "holds the checkpoints of another run"),
        ("validation", "was measured on other validation images than those of fc100 now"),
    ],
)
def test_one_changed_pixel_is_noticed_when_a_training_goes_on(
    few_shot: Command, split: str, told: str
) -> None:
    few_shot.train("--steps", "2")
    before = contents(few_shot.folder / "run/checkpoint")
    file = few_shot.folder / f"data/fc100/{split}.npz"
    with np.load(file) as kept_images:
        arrays = dict(kept_images)
    arrays["images"][3, 2, 2, 1] ^= 1
    np.savez(file, **arrays)
    shown = few_shot("train", *SMALL, "--steps", "4")
    assert shown.code == 2
    assert told in shown.err.replace("\n", " ")
    assert contents(few_shot.folder / "run/checkpoint") == before


def test_seconds_add_up_over_the_parts_of_a_training(few_shot: Command) -> None:
    few_shot.train("--steps", "2")
    first = few_shot.kept()["past"]["seconds"]
    few_shot.train("--steps", "3")
    assert few_shot.kept()["past"]["seconds"] > first > 0
    shown = few_shot.train("--steps", "4", "--seconds", str(first))
    assert "It had already ended" in shown.out


def test_a_divergence_says_what_to_try_and_keeps_finite_models(few_shot: Command) -> None:
    shown = few_shot("train", *SMALL, "--steps", "6", "--outer-lr", "1e30")
    assert shown.code == 1
    assert "diverged: step 2 gave values that are not finite" in shown.err
    given = find("itd-bio").defaults
    assert "with a smaller --outer-lr than 1e+30, or a larger --ridge than" in shown.err
    assert f"--outer-lr than 1e+30, or a larger --ridge than {given['ridge']:g}." in shown.err
    assert torch.isfinite(few_shot.content()["x"]).all()
    assert [line["step"] for line in few_shot.history()] == [1]
    again = few_shot("train", *SMALL, "--steps", "6", "--outer-lr", "1e30")
    assert (again.code, again.err.splitlines()[-1]) == (1, shown.err.splitlines()[-1])


def test_two_processes_train_and_go_on(few_shot: Command) -> None:
    """Only the first measures and writes; the other takes part in the steps and in a resumption."""
    settings = settle(
        "fc100", "itd-bio", {}, filters=4, ways=3, shots=2, queries=2, batch=2,
        seed=0, validate_every=2, validation_tasks=3,
    )  # fmt: skip

    def share(peers: Peers, steps: int) -> str:
        job = training_job.prepare(settings, Limits(steps), RunFolder(few_shot.folder / "two"), "")
        made = job.run(lambda: load_images("fc100"), TrainingBar, peers)
        return made.text

    for steps in (3, 5):
        texts = together(2, functools.partial(share, steps=steps))
        assert "best validation accuracy" in texts[0]
        assert texts[1] == ""
    assert [line["step"] for line in few_shot.history("two")] == [2, 3, 4, 5]
    few_shot.train("--steps", "5")
    alone, both = (few_shot.content(f"{run}/last.pt")["x"] for run in ("run", "two"))
    torch.testing.assert_close(both, alone, rtol=1e-3, atol=1e-4)
