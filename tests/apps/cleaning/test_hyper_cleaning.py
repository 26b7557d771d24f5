"""The engine of cleaning: weights, flags, refit, and the rows held back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import scipy.special
import torch
from bilevel.cleaning import clean, default_algorithm
from bilevel.penalties import learn_penalties
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import bilevel
from bilevel.algorithms import registry
from bilevel.apps.holdout import LabelledRows, fit_softmax
from bilevel.datasets import corrupt
from bilevel.models.softmax.form import Ridge, SigmoidWeights
from bilevel.models.softmax.problem import add_bias, softmax_problem
from bilevel.runs.minimize import Progress
from bilevel.runs.result import Status


def clouds(rows: int, seed: int) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    labels = np.arange(rows) % 4
    return add_bias(1.5 * np.eye(4)[labels] + random.normal(0, 0.5, (rows, 4))), labels


ROWS, RIGHT = clouds(300, 1)
LABELS, _, WRONG = corrupt(RIGHT, 0.4, classes=4, seed=0)
TRUSTED, TRUSTED_LABELS = clouds(80, 2)
DATA = (ROWS, LABELS, TRUSTED, TRUSTED_LABELS)  # as `clean` takes them


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_wrong_labels_are_unlikely_light_and_flagged(dtype: Any) -> None:
    found = clean(ROWS.astype(dtype), LABELS, TRUSTED.astype(dtype), TRUSTED_LABELS)
    assert roc_auc_score(WRONG, -found.label_quality) > 0.97
    assert roc_auc_score(WRONG, -found.weights) > 0.85
    assert found.flagged[WRONG].mean() > 0.9
    assert found.flagged[~WRONG].mean() < 0.1
    assert (found.likely_label == RIGHT).mean() > 0.95
    assert found.accuracy_after >= found.accuracy_before
    assert found.coefficients.shape == (5, 4)
    assert found.coefficients.dtype == dtype


def test_what_is_said_of_each_row_is_what_the_coefficients_say() -> None:
    found = clean(*DATA)
    probabilities = scipy.special.softmax(ROWS @ found.coefficients, axis=1)
    assert np.allclose(found.label_quality, probabilities[np.arange(300), LABELS])
    assert np.array_equal(found.likely_label, probabilities.argmax(1))


def test_the_refit_agrees_with_scikit_learn() -> None:
    found = clean(*DATA, ridge=0.01)
    X = np.concatenate([ROWS[~found.flagged], TRUSTED])
    y = np.concatenate([LABELS[~found.flagged], TRUSTED_LABELS])
    # C_r ‖w‖² on the mean loss is C = 1/(2 C_r n) on the sum.
    model = LogisticRegression(C=1 / (0.02 * len(y)), fit_intercept=False, tol=1e-8).fit(X, y)
    theirs = model.predict_proba(ROWS)
    ours = scipy.special.softmax(ROWS @ found.coefficients, axis=1)
    assert np.abs(ours - theirs).max() < 0.01


def test_sparse_rows_are_cleaned_as_dense_ones() -> None:
    dense = clean(*DATA)
    sparse = clean(
        scipy.sparse.csr_matrix(ROWS), LABELS, scipy.sparse.csr_array(TRUSTED), TRUSTED_LABELS
    )
    assert np.abs(dense.label_quality - sparse.label_quality).max() < 0.02
    assert (dense.flagged == sparse.flagged).mean() > 0.99


def test_clean_labels_stay_unflagged_but_for_a_few_that_are_hard() -> None:
    assert clean(ROWS, RIGHT, TRUSTED, TRUSTED_LABELS).flagged.mean() < 0.05


@pytest.mark.parametrize("algorithm", ["aid-bio", "stocbio"])
def test_the_same_seed_gives_the_same_bits(algorithm: str) -> None:
    runs = [clean(*DATA, algorithm=algorithm, steps=3, seed=seed) for seed in (7, 7, 8)]
    assert np.array_equal(runs[0].weights, runs[1].weights)
    assert np.array_equal(runs[0].coefficients, runs[1].coefficients)
    assert not np.array_equal(runs[0].weights, runs[2].weights)


def test_what_was_given_is_left_as_it_was() -> None:
    given = [array.copy() for array in DATA]
    state = torch.get_rng_state()
    clean(*given, algorithm="stocbio", steps=2)
    for array, before in zip(given, DATA, strict=True):
        assert np.array_equal(array, before)
    assert torch.equal(torch.get_rng_state(), state)


def test_an_algorithm_with_settings_of_ones_own_is_used() -> None:
    algorithm = bilevel.algorithms.Reverse(inner_lr=0.3, inner_steps=7, outer_lr=1e-9)
    found = clean(*DATA, algorithm=algorithm, steps=2)
    assert found.result.counts.gc_g == 14
    assert np.allclose(found.weights, 0.5)


def test_callbacks_see_every_step_and_can_stop_the_run() -> None:
    seen: list[int] = []

    def stop_at_two(progress: Progress) -> bool:
        seen.append(progress.record.step)
        return len(seen) == 2

    found = clean(*DATA, callbacks=[stop_at_two])
    assert seen == [1, 2]
    assert len(found.held_back_loss) == 2


# The rows held back


def test_the_run_stops_when_rows_held_back_gain_no_more_and_the_best_is_kept() -> None:
    states: list[Any] = []
    found = clean(
        *DATA, steps=50, patience=3, callbacks=[lambda progress: states.append(progress.x)]
    )
    losses = np.array(found.held_back_loss)
    assert found.result.status is Status.STOPPED
    assert len(losses) == len(states) < 50
    best = states[losses.argmin()].sigmoid().numpy()
    assert np.array_equal(found.weights, best)


def test_the_first_step_without_a_gain_of_a_hundredth_ends_a_run_without_patience() -> None:
    losses = np.array(clean(*DATA, patience=1).held_back_loss)
    gained = losses[1:] < 0.99 * np.minimum.accumulate(losses)[:-1]
    assert len(gained) >= 2
    assert gained[:-1].all()
    assert not gained[-1]


def test_a_split_has_both_parts_whatever_the_fraction() -> None:
    rows = LabelledRows.of(np.eye(5), np.arange(5))
    for fraction, held in ((0.01, 1), (0.4, 2), (0.99, 4)):
        rest, part = rows.split("validation", fraction, seed=0)
        assert len(part.labels) == held
        assert sorted([*rest.labels, *part.labels]) == list(range(5))


def test_a_run_that_diverges_at_once_still_judges_by_the_trusted_rows() -> None:
    algorithm = bilevel.algorithms.AIDFP(
        inner_lr=1e30, inner_steps=20, fixed_point_lr=1e30, cg_steps=20
    )
    found = clean(*DATA, algorithm=algorithm)
    assert found.result.status is Status.DIVERGED
    assert found.held_back_loss == []
    assert (found.weights == 0.5).all()
    assert roc_auc_score(WRONG, -found.label_quality) > 0.9


# Default settings


@pytest.mark.parametrize("name", registry())
def test_every_algorithm_has_settings_that_do_not_diverge(name: str) -> None:
    # Large columns that cancel each other out: the step size must see them.
    wide, trusted_wide = (30 * np.column_stack([a[:, 0], -a[:, 0]]) for a in (ROWS, TRUSTED))
    problem = softmax_problem(
        (wide, np.where(LABELS == 0, 0, 1)),
        (trusted_wide, np.where(TRUSTED_LABELS == 0, 0, 1)),
        weights=SigmoidWeights(),
        penalty=Ridge(1e-3),
    )
    result = bilevel.minimize(problem, default_algorithm(name, problem), steps=5)
    assert result.status is Status.STEP_LIMIT
    assert result.history[-1].outer_value < np.log(2)


def test_an_unknown_algorithm_is_named_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match=r"no algorithm 'adam'; there are .*aid-bio, .*ttsa"):
        clean(*DATA, algorithm="adam")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": np.zeros(299, int)}, r"rows of shape \(300, 5\) and labels of shape \(299,\)"),
        ({"trusted_labels": np.zeros((80, 1), int)}, r"labels of shape \(80, 1\)"),
        ({"labels": np.full(300, -1)}, "integers from 0"),
        ({"rows": np.full((300, 5), np.nan)}, "nan|finite"),
        ({"trusted_rows": np.ones((80, 3))}, "must agree"),
        ({"trusted_rows": np.ones((1, 5)), "trusted_labels": [0]}, "at least 2 rows"),
        ({"classes": 3}, "label 3, but only 3 classes"),
        ({"ridge": 0}, "strength must be a positive number, got 0"),
        ({"steps": 0}, "steps must be an integer of at least 1, got 0"),
        ({"patience": 0}, "patience must be an integer of at least 1, got 0"),
        ({"hold_back": 1.0}, "hold_back must be a fraction between 0 and 1, got 1.0"),
    ],
)
def test_wrong_arguments_are_quoted(changes: dict[str, Any], message: str) -> None:
    names = ("rows", "labels", "trusted_rows", "trusted_labels")
    with pytest.raises(ValueError, match=message):
        clean(**(dict(zip(names, DATA, strict=True)) | changes))


# What cleaning and penalties share


def test_a_fit_ends_where_the_gradient_is_small() -> None:
    rows = LabelledRows.of(*clouds(200, 3))
    W = fit_softmax(rows, 4, Ridge(0.01), None, np.zeros((5, 4)), accuracy=1e-6)
    residual = scipy.special.softmax(rows.features @ W, axis=1) - np.eye(4)[rows.labels]
    gradient = rows.features.T @ residual / 200 + 0.02 * W
    start = rows.features.T @ (0.25 - np.eye(4)[rows.labels]) / 200
    assert np.linalg.norm(gradient) <= 1e-6 * np.linalg.norm(start)


def test_penalties_switch_off_the_features_that_say_nothing() -> None:
    random = np.random.default_rng(0)
    labels = np.arange(400) % 2
    features = random.normal(size=(400, 6))
    features[:, :2] += labels[:, None]
    found = learn_penalties(features, labels, steps=20)
    assert found.log_penalties[:2].max() < found.log_penalties[2:].min()
    again = learn_penalties(features, labels, steps=20)
    assert np.array_equal(found.coefficients, again.coefficients)
    with pytest.raises(ValueError, match=r"at least 2 rows to hold one back, got 1"):
        learn_penalties(features[:1], labels[:1])
