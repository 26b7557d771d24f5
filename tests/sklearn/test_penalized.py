"""Penalties by cross-validation, and gross errors in numbers, against closed forms and truths."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state

import sklearn
from bilevel.apps import cross_fitted as engine
from bilevel.apps.class_sums import ClassSums
from bilevel.apps.linear_fits import ClassFit, NumberFit, Rows
from bilevel.apps.penalty_search import STEP, Search, Task
from bilevel.sklearn import (
    HyperCleaner,
    HyperCleaningRegressor,
    PenalizedLogisticRegression,
    PenalizedRidge,
)


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(0)
    X = random.normal(size=(160, 6))
    y = (X[:, 0] - X[:, 1] + 0.7 * random.normal(size=160) > 0).astype(int)
    return X, y


@pytest.mark.parametrize("classes", [2, 3, None])
def test_a_fit_is_the_minimum_and_knows_its_curvature(table, classes):
    X, y = table
    weights = np.random.default_rng(1).uniform(0.5, 2, len(y))
    labels = {2: y, 3: np.arange(160) % 3, None: X[:, 0] + 0.1 * y}[classes]
    rows, level, own = Rows(X, labels, weights), 0.3, np.linspace(-1, 2, 6)
    fit = NumberFit(rows) if classes is None else ClassFit(rows, classes)
    fit.solve(1.0)
    fit.solve(level, own)
    A, s, b = (torch.as_tensor(part) for part in (X, weights, labels))
    c = torch.as_tensor(np.exp(level + own))

    def loss(W):
        Z = A @ W.T + torch.as_tensor(fit.intercept)
        if classes is None:
            return s @ (Z[:, 0] - b).square() / 2
        Z = torch.cat([torch.zeros_like(Z), Z], dim=1) if classes == 2 else Z
        return s @ torch.nn.functional.cross_entropy(Z, b, reduction="none")

    W = torch.as_tensor(fit.coefficients)
    gradient = torch.func.grad(lambda W: loss(W) + (c * W.square()).sum() / 2)(W)
    assert gradient.abs().max() < 1e-6
    H = torch.autograd.functional.hessian(loss, W).reshape(W.numel(), -1)
    assert np.allclose(fit.curvature.T.reshape(-1), H.diagonal(), rtol=1e-8)
    assert weights @ fit.losses(rows) == pytest.approx(float(loss(W)))


def test_one_penalty_without_naive_bayes_is_logistic_regression_at_the_penalty_found(table):
    X, y = table
    for labels in (y, np.arange(160) % 3):
        model = PenalizedLogisticRegression(naive_bayes=False, shrinkage=np.inf, random_state=0)
        level = model.fit(X, labels).log_penalties_
        other = LogisticRegression(C=float(np.exp(-level[0])), tol=1e-8).fit(X, labels)
        assert (level == level[0]).all()
        assert model.coef_.shape == other.coef_.shape
        assert np.allclose(model.coef_, other.coef_, atol=1e-4)
        assert np.allclose(model.predict_proba(X), other.predict_proba(X), atol=1e-4)


def test_the_level_found_is_that_of_the_least_cross_validated_loss(table):
    X, y = table
    model = PenalizedRidge(shrinkage=np.inf, random_state=0).fit(X, X[:, 0] + y)
    b = (X[:, 0] + y - (X[:, 0] + y).mean()) / (X[:, 0] + y).std()
    folds = engine.folds_of(X, np.zeros(160), 5, seed=check_random_state(0).randint(2**31 - 1))

    def judged(level):
        parts = [(folds != k, folds == k) for k in range(5)]
        fits = [Ridge(alpha=np.exp(level)).fit(X[train], b[train]) for train, _ in parts]
        errors = [f.predict(X[t]) - b[t] for f, (_, t) in zip(fits, parts, strict=True)]
        return np.square(np.concatenate(errors)).mean() / 2

    found = model.log_penalties_[0]
    assert model.cv_loss_ == pytest.approx(judged(found))
    # A lighter one gains less than a thousandth, a heavier one loses that.
    assert judged(found - 1.5) >= 0.999 * judged(found)
    assert judged(found) <= 0.999 * judged(found + 1.5)


def test_the_level_found_does_not_depend_on_where_the_search_begins(table):
    X, y = table
    folds = engine.folds_of(X, y, 5, seed=0)
    rows = Rows(X, y, np.ones(160))
    task = Task(rows, 2, folds, 5, 5, np.arange(6), 3.0, False, 1, lambda text: None)
    usual = Search(task, None)
    usual.find_level()
    for steps in (-2, 0, 2):
        search = Search(task, None)
        search.find_level(usual.level + steps * STEP)
        assert search.level == pytest.approx(usual.level)
        assert search.calls == 3 + abs(steps) - (steps > 0)  # both neighbours, and the way there


def test_ridge_is_the_closed_form_at_the_penalties_found():
    X, y = load_diabetes(return_X_y=True)
    model = PenalizedRidge(random_state=0).fit(X, y)
    assert np.ptp(model.log_penalties_) > 0.1
    scaled = X * np.exp(-model.log_penalties_ / 2)
    other = Ridge(alpha=1.0, tol=1e-12).fit(scaled, y)
    assert np.allclose(model.predict(X), other.predict(scaled), rtol=1e-8)
    assert model.coef_.shape == (10,)


def test_features_that_say_nothing_are_penalised_more(table):
    X, y = table
    X = np.c_[X, np.random.default_rng(1).normal(size=(160, 30))]
    found = PenalizedLogisticRegression(shrinkage=1.0, random_state=0).fit(X, y).log_penalties_
    assert found[:2].max() < found[2:].min()


def test_features_of_a_group_share_a_penalty(table):
    X, y = table
    # Equal variances, so that only the groups tell the features apart.
    model = PenalizedLogisticRegression(groups=list("aabbcc"), shrinkage=1.0, random_state=0)
    found = model.fit(X / X.std(0), y).log_penalties_.reshape(3, 2)
    assert np.allclose(found[:, 0], found[:, 1])
    assert found[0, 0] < found[1:].min()
    with pytest.raises(ValueError, match="each of the 6 features"):
        PenalizedLogisticRegression(groups=[0, 1]).fit(X, y)


def test_copies_of_a_row_share_a_fold_whatever_the_order():
    X = np.random.default_rng(0).normal(size=(40, 3))
    y = np.arange(40) % 2
    folds = engine.folds_of(X, y, 5, seed=0)
    twice = engine.folds_of(np.r_[X[::-1], X], np.r_[y[::-1], y], 5, seed=0)
    assert np.array_equal(twice, np.r_[folds[::-1], folds])
    counts = np.array([np.bincount(folds[y == k], minlength=5) for k in (0, 1)])
    assert (counts == 4).all()
    alone = engine.folds_of(X, np.r_[y[:-1], 2], 5, seed=0)
    assert (alone == 5).nonzero()[0].tolist() == [39]


def test_naive_bayes_scores_of_a_row_do_not_depend_on_its_fold():
    random = np.random.default_rng(0)
    X, y, folds = random.poisson(1.0, (60, 5)).astype(float), np.arange(60) % 3, np.arange(60) % 4
    rows = Rows(X, y, np.ones(60))
    sums = ClassSums.of(rows, 3, folds)
    rest = folds != 2
    alone = ClassSums.of(rows.take(rest), 3, np.array([0, 1, 9, 2])[folds[rest]])
    alone = replace(alone, smoothing=sums.smoothing)  # features' scale alone, no labels
    ratio = sums.scores_within(set())[~rest] / (X[~rest] @ alone.weights(set()))
    assert np.allclose(ratio, ratio[0, 0])


def test_naive_bayes_lowers_the_loss_on_counts_of_words():
    random = np.random.default_rng(0)
    y = np.arange(1000) % 4
    rates = random.gamma(0.3, size=(4, 300))
    X = scipy.sparse.csr_array(random.poisson(0.03 * rates[y]).astype(float))
    losses = []
    for naive_bayes in (False, True):
        model = PenalizedLogisticRegression(naive_bayes=naive_bayes, random_state=0)
        P = model.fit(X[:600], y[:600]).predict_proba(X[600:])
        losses.append(-np.log(P[np.arange(400), y[600:]]).mean())
    assert losses[1] < 0.97 * losses[0]


def test_a_class_of_one_row_is_learned(table):
    X, y = table
    model = PenalizedLogisticRegression(random_state=0).fit(X, np.r_[y[:-1], 2])
    assert model.coef_.shape == (3, 6)
    assert np.isfinite(model.cv_loss_)


def test_large_rows_learn_one_level_with_naive_bayes(table, monkeypatch):
    monkeypatch.setattr(engine, "_LARGE", 0)
    random = np.random.default_rng(0)
    y = np.arange(400) % 2
    X = scipy.sparse.csr_array(random.poisson(0.1 + 0.2 * random.random((2, 500))[y]).astype(float))
    model = PenalizedLogisticRegression(random_state=0).fit(X[:300], y[:300])
    assert np.ptp(model.log_penalties_) == 0
    assert model.score(X[300:], y[300:]) > 0.8


def test_a_weight_of_two_is_a_copy_and_class_weights_are_weights(table):
    X, y = table
    weights = 1.0 + (np.arange(160) < 50)
    model = PenalizedLogisticRegression(random_state=0)
    heavy = model.fit(X, y, sample_weight=weights).coef_
    copies = model.fit(np.r_[X, X[:50]], np.r_[y, y[:50]]).coef_
    assert np.allclose(heavy, copies, atol=1e-5)
    by_class = PenalizedLogisticRegression(class_weight={0: 1, 1: 3}, random_state=0).fit(X, y)
    assert np.array_equal(by_class.coef_, model.fit(X, y, np.where(y == 1, 3.0, 1.0)).coef_)


def test_threads_and_frames_change_nothing(table, capsys):
    X, y = table
    plain = PenalizedLogisticRegression(random_state=0).fit(X, y)
    frame = pd.DataFrame(X, columns=list("abcdef"))
    other = PenalizedLogisticRegression(n_jobs=2, verbose=1, random_state=0).fit(frame, y)
    assert np.array_equal(plain.coef_, other.coef_)
    assert list(other.feature_names_in_) == list("abcdef")
    assert "cross-validated loss" in capsys.readouterr().out


@pytest.mark.parametrize("estimator", [PenalizedLogisticRegression(), PenalizedRidge()])
def test_texts_are_answered_with_what_to_do(estimator):
    with pytest.raises(ValueError, match=r"could not convert string.*OneHotEncoder"):
        estimator.fit(pd.DataFrame({"a": ["x", "y"] * 5}), [0, 1] * 5)


@pytest.fixture(scope="module")
def wrong_numbers():
    random = np.random.default_rng(0)
    X = random.normal(size=(200, 3)) * [1, 100, 0.01]
    right = X @ [1, 0.01, 100] + 0.1 * random.normal(size=200)
    wrong = np.arange(200) < 30
    return X, np.where(wrong, right + 4, right), wrong


def test_gross_errors_are_flagged_and_the_fit_is_without_them(wrong_numbers):
    X, y, wrong = wrong_numbers
    scaled = StandardScaler().fit_transform(X)
    model = HyperCleaningRegressor("hyper-cleaning", random_state=0).fit(
        scaled, y, trusted=np.arange(150, 200)
    )
    assert model.label_issues_[wrong].all()
    assert model.label_issues_[~wrong].mean() < 0.02
    assert model.sample_weight_[wrong].max() < model.sample_weight_[~wrong].min()
    assert (model.sample_weight_[150:] == 1).all()
    truth = Ridge(alpha=1e-6).fit(scaled[~wrong], y[~wrong])
    assert np.allclose(model.predict(scaled), truth.predict(scaled), atol=0.05)


def test_without_trusted_rows_the_best_half_serves_with_a_warning(wrong_numbers):
    X, y, wrong = wrong_numbers
    with pytest.warns(UserWarning, match="no trusted rows"):
        model = make_pipeline(
            StandardScaler(), HyperCleaningRegressor("hyper-cleaning", random_state=0)
        ).fit(X, y)
    found = model[-1].label_issues_
    assert found[wrong].all()
    assert found[~wrong].mean() < 0.05


def test_trusted_rows_pass_through_a_pipeline_as_a_mask(wrong_numbers):
    X, y, _ = wrong_numbers
    trusted = np.arange(200) >= 150
    pipe = make_pipeline(StandardScaler(), HyperCleaningRegressor("hyper-cleaning", random_state=0))
    named = pipe.fit(X, y, hypercleaningregressor__trusted=trusted)[-1].coef_
    with sklearn.config_context(enable_metadata_routing=True):
        asks = HyperCleaningRegressor("hyper-cleaning", random_state=0).set_fit_request(
            trusted=True
        )
        routed = make_pipeline(StandardScaler(), asks).fit(X, y, trusted=trusted)[-1].coef_
    assert np.array_equal(named, routed)


def test_trusted_rows_of_their_own_are_scaled_by_a_pipeline_that_is_told_to(wrong_numbers):
    X, _, wrong = wrong_numbers
    labels = (X[:, 0] > 0).astype(int) ^ wrong
    cleaner = HyperCleaner("hyper-cleaning", random_state=0)
    with sklearn.config_context(enable_metadata_routing=True):
        asks = cleaner.set_fit_request(X_trusted=True, y_trusted=True)
        pipe = make_pipeline(StandardScaler(), asks, transform_input=["X_trusted"])
        pipe.fit(X[:150], labels[:150], X_trusted=X[150:], y_trusted=labels[150:])
    scaler = StandardScaler().fit(X[:150])
    good = scaler.transform(X[150:]), labels[150:]
    apart = HyperCleaner("hyper-cleaning", random_state=0)
    apart.fit(scaler.transform(X[:150]), labels[:150], *good)
    assert np.array_equal(pipe[-1].coef_, apart.coef_)
    assert apart.coef_.shape == (1, 3)


def test_all_rows_alike_still_give_a_model():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = PenalizedLogisticRegression(random_state=0).fit(np.ones((8, 2)), [0, 1] * 4)
    assert np.allclose(model.predict_proba(np.ones((1, 2))), 0.5, atol=1e-3)
    assert torch.is_grad_enabled()
