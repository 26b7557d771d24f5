"""Experts judge a row by fits that did not see its label; the pool's gradient is the true one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_gaussian_quantiles
from sklearn.ensemble import ExtraTreesRegressor, RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from bilevel.apps.cleaning import experts
from bilevel.apps.cleaning.engine import find_wrong_labels
from bilevel.apps.cleaning.experts import Forest, Opinion, Ridge, Rows
from bilevel.apps.cleaning.features import Features
from bilevel.apps.cleaning.pool import Evidence, Likelihood, Terms, fit_pool

EXPERTS = (
    experts.softmax_regression,
    experts.extra_trees,
    experts.random_forest,
    experts.kernel_ridge,
    experts.linear_ridge,
)


def rows(n: int = 60, classes: int = 3, seed: int = 0) -> Rows:
    random = np.random.default_rng(seed)
    codes = np.arange(n) % classes
    X = np.eye(classes)[codes] + 0.5 * random.normal(size=(n, classes))
    features = Features(X, X, X.astype(np.float32))
    weight = random.integers(1, 4, n).astype(float)
    fold = random.permutation(n) % experts.FOLDS
    return Rows(features, np.eye(classes)[codes], weight, fold, np.arange(n), seed, None)


@pytest.mark.parametrize("expert", EXPERTS)
@pytest.mark.parametrize("classes", [2, 3])
def test_a_rows_own_label_does_not_move_what_is_thought_of_it(
    expert: Callable[[Rows], Opinion], classes: int
) -> None:
    data, row = rows(classes=classes), 7
    Q = data.Q.copy()
    Q[row] = np.roll(Q[row], 1)
    before, after = (expert(data._replace(Q=q)).scores[row] for q in (data.Q, Q))
    # A forest's splits come from other rows' bags; the penalty of a ridge is chosen on all rows.
    assert np.allclose(before, after, atol=0.02 if "ridge" in expert.__name__ else 1e-12)
    assert not np.allclose(expert(data).scores, expert(data._replace(Q=Q)).scores)


@pytest.mark.parametrize("columns", [3, 90], ids=["few columns", "more columns than rows"])
def test_leave_one_out_of_the_ridge_is_what_a_fit_without_the_row_says(columns: int) -> None:
    data, random = rows(), np.random.default_rng(2)
    X = random.normal(size=(60, columns))
    X -= X.mean(0)  # then all other rows together tell what the columns of one are
    data = data._replace(features=Features(X, X, X), Q=np.eye(3)[random.integers(3, size=60)])
    none = Ridge(np.zeros(0), np.zeros(0), np.zeros((0, 0)), np.zeros((0, 0)), 1.0)
    scores = experts._ridge(data, iter([none]), (0.1,)).scores
    for i in (0, 31):
        without = data._replace(rows=np.flatnonzero(np.arange(60) != i))
        assert np.allclose(scores[i], experts._ridge(without, iter([none]), (0.1,)).scores[i])
    A = np.c_[X, np.full(60, 30.0)] * np.sqrt(data.weight)[:, None]
    beta = np.linalg.solve(
        A.T @ A + 0.1 * np.eye(columns + 1), A.T @ (np.sqrt(data.weight)[:, None] * data.Q)
    )
    model = experts._ridge(data, iter([none]), (0.1,)).model
    assert np.allclose(model.scores(data.features), np.c_[X, np.full(60, 30.0)] @ beta)


def test_rows_beyond_those_learned_from_get_predictions() -> None:
    data = rows()._replace(rows=np.arange(40))
    for expert in EXPERTS:
        opinion = expert(data)
        assert np.allclose(opinion.scores[40:], opinion.model.scores(data.features)[40:], atol=2e-3)


@pytest.mark.parametrize("expert", [experts.softmax_regression, experts.kernel_ridge])
def test_of_very_many_rows_a_linear_model_learns_from_some(
    expert: Callable[[Rows], Opinion], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = rows()
    monkeypatch.setattr(experts, "_MANY", 40)
    some = np.random.default_rng(data.seed).permutation(60)[:40]
    found, of_some = expert(data), expert(data._replace(rows=np.sort(some)))
    assert np.array_equal(found.scores, of_some.scores)
    other = np.setdiff1d(np.arange(60), some)
    expected = found.model.scores(data.features.of(other))
    np.testing.assert_allclose(found.scores[other], expected, rtol=1e-12)


def test_softmax_regression_is_scikit_learns() -> None:
    data = rows()
    ours = experts.softmax_regression(data, ridge=0.01, steps=500).model.scores(data.features)
    # A ridge r/2 ‖w‖² on the weighted mean loss is C = 1/(r n) on the sum.
    theirs = LogisticRegression(C=1 / (0.01 * data.weight.sum()), tol=1e-10, max_iter=2000)
    theirs.fit(data.features.linear, data.Q.argmax(1), sample_weight=data.weight)
    assert np.abs(ours - theirs.predict_proba(data.features.linear)).max() < 1e-3


def test_stored_trees_predict_as_scikit_learns() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(200, 4)).astype(np.float32)
    y = np.stack([X[:, 0] > 0, X[:, 0] <= 0], 1).astype(float)
    forest = ExtraTreesRegressor(5, random_state=0, min_samples_leaf=4).fit(X, y)
    stored = Forest.of([tree.tree_ for tree in forest.estimators_])
    assert np.allclose(stored.scores(Features(X, X, X)), forest.predict(X), atol=1e-3)


def evidence(classes: int, seed: int = 0) -> Evidence:
    random = np.random.default_rng(seed)
    logs = np.log(random.dirichlet(np.ones(classes), size=(3, 37)))
    given, right = random.integers(classes, size=30), random.integers(classes, size=7)
    return Evidence(logs[:, :30], given, logs[:, 30:], right)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize(
    "terms",
    [
        Terms(),
        Terms(hard_rows=False),
        Terms(entropy=0.0, bias=8.0, rates=np.array(0.3)),
        Terms(votes=np.random.default_rng(5).normal(size=(30, 1))),
    ],
    ids=["hard rows", "plain", "rates are given", "votes"],
)
def test_the_gradient_of_the_pool_is_that_of_finite_differences(classes: int, terms: Terms) -> None:
    if terms.votes is not None:
        terms = replace(terms, votes=terms.votes * np.arange(classes))
    loss = Likelihood(evidence(classes), terms)
    point = loss.start + 0.3 * np.random.default_rng(1).normal(size=loss.start.shape)
    steps = 1e-6 * np.eye(len(point))
    numeric = [(loss(point + h)[0] - loss(point - h)[0]) / 2e-6 for h in steps]
    assert np.abs(loss(point)[1] - numeric).max() < 1e-6


def test_the_posterior_is_by_bayes_where_the_rates_are_known() -> None:
    given = evidence(2)
    verdict = fit_pool(given, Terms(hard_rows=False, rates=np.array([0.1, 0.3])))
    P = verdict.pool.probabilities(given.doubtful)
    T = np.array([[0.9, 0.1], [0.3, 0.7]])  # of the true class, of the given label
    joint = P * T[:, given.given].T
    assert np.allclose(verdict.posterior, joint / joint.sum(1, keepdims=True))


def test_a_pool_of_few_rows_serves_all(monkeypatch: pytest.MonkeyPatch) -> None:
    given = evidence(2)
    monkeypatch.setattr("bilevel.apps.cleaning.pool._MOST", 20)
    assert fit_pool(given, Terms()).posterior.shape == (30, 2)


def opinion(table: pd.DataFrame, labels: Any, **options: Any) -> Any:
    from bilevel.apps.cleaning.engine import find_wrong_labels

    return find_wrong_labels(table, labels, **options)


def two_clouds(n: int = 160, seed: int = 0, spread: float = 0.4) -> tuple[pd.DataFrame, Any]:
    random = np.random.default_rng(seed)
    right = np.arange(n) % 2
    points = right[:, None] + spread * random.normal(size=(n, 2))
    return pd.DataFrame(points, columns=["a", "b"]), right


def test_a_copied_row_does_not_vouch_for_its_own_wrong_label() -> None:
    table, right = two_clouds()
    labels = right.copy()
    labels[:8] = 1 - labels[:8]
    copied, twice = pd.concat([table, table[:8], table[:8]]), np.r_[labels, labels[:8], labels[:8]]
    found = opinion(copied.reset_index(drop=True), twice)
    assert found.wrong[:8].mean() > 0.8
    assert np.allclose(found.wrong[:8], found.wrong[160:168])


def test_a_file_that_holds_its_rows_three_times_is_judged_as_the_file_itself() -> None:
    table, right = two_clouds(240)
    labels = right.copy()
    labels[:20] = 1 - labels[:20]
    found = opinion(pd.concat([table] * 3).reset_index(drop=True), np.tile(labels, 3))
    assert found.flagged.reshape(3, -1)[:, :20].mean() > 0.8
    assert found.flagged.reshape(3, -1)[:, 20:].mean() < 0.1


def test_rows_of_few_values_are_no_copies() -> None:
    random = np.random.default_rng(0)
    table = pd.DataFrame({"a": random.integers(3, size=300), "b": random.integers(2, size=300)})
    right = (table.a > 0).to_numpy().astype(int)
    labels = np.where(random.random(300) < 0.1, 1 - right, right)
    found = opinion(table, labels)
    assert (found.flagged == (labels != right)).all()


def test_labels_at_random_are_called_blind_and_twenty_trusted_rows_cure_it() -> None:
    table, right = two_clouds(200)
    random = np.random.default_rng(1)
    labels = random.integers(2, size=200)
    assert opinion(table, labels).blind
    trusted = np.arange(200) < 20
    assert not opinion(table, np.where(trusted, right, labels), trusted=trusted).blind
    assert not opinion(table, right).blind


def test_no_class_is_lost_where_two_of_many_are_mistaken_for_each_other() -> None:
    random = np.random.default_rng(0)
    right = np.arange(360) % 3
    table = pd.DataFrame(random.normal(size=(360, 2)) + np.eye(3)[right][:, :2] * [6, 1.5])
    swapped = (right > 0) & (random.random(360) < 0.42)
    found = opinion(table, np.where(swapped, 3 - right, right))
    assert np.bincount(found.labels.argmax(1), minlength=3).min() > 60


def test_where_noise_and_hard_rows_look_alike_the_model_is_better_than_one_of_the_labels() -> None:
    X, right = make_gaussian_quantiles(n_samples=1200, n_features=4, n_classes=4, random_state=1)
    given = right[:600].copy()
    wrong = np.random.default_rng(1).random(600) < 0.1
    given[wrong] = (given[wrong] + 1) % 4
    model = find_wrong_labels(X[:600], given).model
    guessed = model.classes[model.probabilities(pd.DataFrame(X[600:])).argmax(1)]
    forest = RandomForestClassifier(100, random_state=0).fit(X[:600], given)
    assert (guessed == right[600:]).mean() > forest.score(X[600:], right[600:]) + 0.01


def test_nothing_that_was_given_is_changed_and_the_seed_decides() -> None:
    table, labels = two_clouds(80)
    before = table.copy(), labels.copy()
    first, again = (opinion(table, labels, seed=3) for _ in range(2))
    assert table.equals(before[0])
    assert np.array_equal(labels, before[1])
    assert np.array_equal(first.wrong, again.wrong)


def test_experts_of_one_class_and_of_constant_features_are_harmless() -> None:
    data = rows()
    alone = data._replace(Q=np.eye(3)[np.zeros(60, int)])
    flat = data._replace(features=Features(*(np.zeros((60, 2)) for _ in range(3))))
    for case in (alone, flat):
        for expert in EXPERTS:
            assert np.isfinite(expert(case).scores).all()
    assert replace(Terms(), entropy=0.0) != Terms()
