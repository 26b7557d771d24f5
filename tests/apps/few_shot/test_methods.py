"""The named methods of few-shot learning, and their options."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from bilevel.few_shot import Accuracy, LearnedHead, RandomHead, WholeNetwork

import bilevel
from bilevel.apps.few_shot.methods import find, methods
from bilevel.errors import UserError
from bilevel.schedules import increasing

from .few_shot_pictures import Command, untrained


@pytest.mark.parametrize("name", methods())
def test_every_method_starts_anew_at_each_step_with_adam_outside(name: str) -> None:
    method = find(name)
    algorithm = method.algorithm(method.options({}))
    assert algorithm.outer == bilevel.updates.Adam(method.defaults["outer_lr"])
    assert algorithm.warm_start is False


def test_methods_are_what_their_names_say() -> None:
    made = {name: find(name).algorithm(find(name).options({})) for name in methods()}
    kinds = {name: type(algorithm).__name__ for name, algorithm in made.items()}
    assert kinds == {
        "itd-bio": "ITDBiO",
        "aid-bio": "AIDBiO",
        "aid-bio-increasing": "AIDBiO",
        "fo-itd-bio": "ITDBiO",
        "itd-bio-random-head": "ITDBiO",
        "anil": "MAML",
        "maml": "MAML",
    }
    assert made["fo-itd-bio"].price(0).known["jv"] == 0 < made["itd-bio"].price(0).known["jv"]
    growing = find("aid-bio-increasing").algorithm(
        find("aid-bio-increasing").options({"growth": 2})
    )
    assert [growing.price(k).known["gc_g"] for k in (0, 15, 80)] == [2, 4, 6]
    learners = {n: find(n).adapts(find(n).options({}), 7) for n in methods()}
    assert {n: type(learner).__name__ for n, learner in learners.items()} == {
        "itd-bio": "ZeroHead",
        "aid-bio": "ZeroHead",
        "aid-bio-increasing": "ZeroHead",
        "fo-itd-bio": "ZeroHead",
        "itd-bio-random-head": "RandomHead",
        "anil": "LearnedHead",
        "maml": "WholeNetwork",
    }
    assert learners["itd-bio-random-head"].ridge == 0
    assert learners["itd-bio"].ridge == find("itd-bio").defaults["ridge"] > 0


def test_an_option_that_a_method_has_not_is_refused() -> None:
    with pytest.raises(UserError, match="anil has no --ridge; its options are --inner-steps"):
        find("anil").options({"ridge": 0.1})
    with pytest.raises(UserError, match="aid-bio-increasing has no --inner-steps"):
        find("aid-bio-increasing").options({"inner_steps": 3})
    with pytest.raises(UserError, match=r"maml cannot use .*lr must be a positive number, got -1"):
        find("maml").options({"inner_lr": -1.0})
    with pytest.raises(UserError, match="no few-shot algorithm 'sgd': choose one of itd-bio"):
        find("sgd")


@pytest.mark.parametrize("name", ["itd-bio-random-head", "anil", "maml"])
def test_a_head_that_starts_at_random_starts_from_the_seed(tmp_path: Path, name: str) -> None:
    settings = untrained(tmp_path / "model.pt", name).settings
    for seed in (0, 5):
        learner = replace(settings, seed=seed).make_learner()
        assert isinstance(learner, RandomHead | LearnedHead | WholeNetwork)
        assert learner.seed == seed


def test_inner_steps_that_grow_are_as_many_in_validation_as_in_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def given(*arguments: Any, step: int, **_: Any) -> Accuracy:
        asked.append(arguments[1].parts(step).inner.steps)
        return Accuracy(0.5, 0.1, 3)

    monkeypatch.setattr("bilevel.apps.few_shot.training.accuracy", given)
    command = Command(tmp_path, monkeypatch, capsys)
    command.train("--algorithm", "aid-bio-increasing", "--growth", "2", "--steps", "4")
    growing = increasing(2)
    assert asked == [growing(2), growing(2), growing(4), growing(4)]


def test_training_is_minimize_on_the_stated_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few_shot = Command(tmp_path, monkeypatch, capsys)
    few_shot.train("--steps", "3", "--inner-steps", "4", "--ridge", "0.2", "--seed", "5")
    images = bilevel.datasets.load_images("fc100").train
    tasks = bilevel.few_shot.Tasks(images, ways=3, shots=2, queries=2, seed=5)
    network = bilevel.few_shot.FourBlocks(3, 16, filters=4, seed=5)
    problem = bilevel.few_shot.few_shot_problem(
        tasks, network, bilevel.few_shot.ZeroHead(0.2), batch=2
    )
    defaults = find("itd-bio").defaults
    assert defaults["inner_lr"] == "auto"
    algorithm = bilevel.algorithms.ITDBiO(
        inner_steps=4,
        inner_lr=bilevel.inner.Measured(),
        outer=bilevel.updates.Adam(defaults["outer_lr"]),
        warm_start=False,
    )
    result = bilevel.minimize(problem, algorithm, steps=3, seed=5)
    assert torch.equal(few_shot.content()["x"], result.state.x)
    assert few_shot.history()[-1]["batch_loss"] == result.history[-1].outer_value
