"""A checkpoint goes on with the run that it belongs to, and with no other."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bilevel
from bilevel.algorithms import AIDBiO, StocBiO
from bilevel.errors import UserError
from bilevel.lab.experiments.experiment import Experiment
from bilevel.lab.experiments.runner import run_experiment
from bilevel.problem.identity import digests
from bilevel.problem.identity.digests import digest_of_rows, digest_of_tensor
from bilevel.problem.identity.words import words_of
from bilevel.problem.sources import as_source

from ...lab.experiments.small_experiments import table, tiny
from ...truth.small_problems import network, softmax
from .kept_runs import kept


def changed_data() -> bilevel.Problem:
    problem = softmax()
    rows = problem.inner_data.rows(None)[0]
    rows[3, 1] += 1e-12
    return problem


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"algorithm": AIDBiO(inner_steps=5, inner_lr=0.2)}, "inner_lr was 0.1, is 0.2"),
        (
            {"algorithm": AIDBiO(inner_steps=7, inner_lr=0.1, inner=bilevel.inner.LBFGS(0.1))},
            "inner_steps was 5, is 7; algorithm.inner was None, is "
            "bilevel.LBFGS; "
            "algorithm.inner.tol was not there, is 0.1",
        ),
        ({"algorithm": StocBiO(batch=3)}, "algorithm was bilevel.AIDBiO, is bilevel.StocBiO"),
        ({"seed": 4}, "seed was 0, is 4"),
        ({"evaluate_every": 2}, "evaluate_every was 1, is 2"),
        ({"metrics": {"m": max}}, "metrics.m was not there, is builtins.max"),
        ({"problem": softmax(seed=1)}, "inner_data was 30 rows with digest"),
        ({"problem": softmax(rows=31)}, "is 31 rows with digest"),
        ({"problem": softmax(features=5)}, "size of x was 4, is 5; size of y was 12, is 15"),
        ({"problem": softmax(penalty=bilevel.PerWeight())}, "size of x was 4, is 12"),
        ({"problem": changed_data()}, "inner_data was 30 rows with digest"),
        ({"problem": network()}, "SoftmaxForm.inner, is tests."),
        ({"callbacks": [lambda p: None]}, None),
        ({"tol": 1e-9, "seconds": 1e9, "steps": 3}, None),
    ],
    ids=lambda value: ", ".join(value) if isinstance(value, dict) else str(value),
)
def test_another_run_is_refused_and_each_difference_named(
    change: dict[str, Any], difference: str | None, tmp_path: Path
) -> None:
    usual: dict[str, Any] = {
        "problem": softmax(),
        "algorithm": AIDBiO(inner_steps=5, inner_lr=0.1),
        "steps": 2,
    }
    kept(tmp_path, **usual)
    if difference is None:
        kept(tmp_path, **{**usual, **change})
        return
    with pytest.raises(UserError) as refused:
        kept(tmp_path, **{**usual, **change})
    assert difference in str(refused.value)
    assert "holds the checkpoints of another run" in str(refused.value)


def test_tensors_that_a_loss_closes_over_count_as_data(tmp_path: Path) -> None:
    def problem(c: float, x0: float = 0.0) -> bilevel.Problem:
        target = torch.tensor([c, 1.0]).double()
        return bilevel.Problem(
            outer=lambda x, y: (y - target).square().sum(),
            inner=lambda x, y: (y - x).square().sum(),
            x0=torch.full((2,), x0).double(),
            y0=torch.zeros(2).double(),
        )

    kept(tmp_path, problem(1.0))
    kept(tmp_path, problem(1.0), steps=7)
    with pytest.raises(UserError, match=r"outer.target was 2 numbers with digest \w+, is 2"):
        kept(tmp_path, problem(1.5))
    with pytest.raises(UserError, match=r"x0 was \w+, is \w+"):
        kept(tmp_path, problem(1.0, 1.0))


def test_other_threads_are_a_warning_since_they_give_other_last_digits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(tmp_path)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 77)
    with pytest.warns(RuntimeWarning, match=r"torch's threads was '?\d+'?, is '?77"):
        kept(tmp_path, steps=7)


def test_an_experiment_with_other_settings_is_refused_by_their_names(tmp_path: Path) -> None:
    run_experiment(tiny(seeds=[0]), tmp_path, "command")
    changed = copy.deepcopy(table(seeds=[0]))
    changed["algorithms"][0]["settings"]["neumann_terms"] = 4
    with pytest.raises(UserError) as refused:
        run_experiment(Experiment.model_validate(changed), tmp_path, "command")
    assert "algorithms.0.settings.neumann_terms was 3, is 4" in str(refused.value)


def test_of_large_data_every_row_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "_AT_ONCE", 2**10)
    data = np.zeros((1000, 16))
    before = digest_of_rows(as_source("data", data)), digest_of_tensor(data)
    for row in (0, 1, 501, 998, 999):
        other = data.copy()
        other[row, 5] = 1.0
        after = digest_of_rows(as_source("data", other)), digest_of_tensor(other)
        assert before[0] != after[0]
        assert before[1] != after[1]
    assert digest_of_rows(as_source("data", data)) == before[0]
    assert digest_of_rows(as_source("data", data[:999])) != before[0]


def test_rows_that_change_from_reading_to_reading_are_not_compared() -> None:
    class Noise:
        def __len__(self) -> int:
            return 5

        def __getitem__(self, index: int) -> torch.Tensor:
            return torch.rand(2)

    assert digest_of_rows(as_source("data", Noise())) is None
    (word,) = words_of({"data": as_source("data", Noise())}).values()
    assert word == "not compared: a row changes from one reading to the next"
