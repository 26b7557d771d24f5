"""Penalties by cross-validation, and gross errors in numbers, against closed forms and truths."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import sklearn
from bilevel.apps import cross_fitted as engine
from bilevel.apps.class_sums import ClassSums
from bilevel.apps.fold_fits import Fit, Rows
from bilevel.apps.penalty_search import Space
from bilevel.models.softmax.losses import CrossEntropy, Squared
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


@pytest.mark.parametrize("loss", [CrossEntropy(), Squared()])
def test_slope_of_a_fold_is_its_finite_difference(table, loss):
    X, y = table
    labels, columns = (y, 2) if isinstance(loss, CrossEntropy) else (X[:, 0] + 0.1 * y, 1)
    weights = np.random.default_rng(1).uniform(0.5, 2, len(y))
    rows = Rows(X, labels, weights)
    train, test = rows.take(np.arange(160) < 120), rows.take(np.arange(160) >= 120)
    fit, h = Fit(train, test, columns, loss, 1e-12), 1e-4
    at = np.linspace(-1, 2, 6)
    found = fit.slope(at)[1][:-1]
    for j, e in enumerate(np.eye(6)):
        difference = (fit.loss(at + h * e) - fit.loss(at - h * e)) / (2 * h)
        assert found[j] == pytest.approx(difference, rel=1e-4, abs=1e-7)


def test_derivative_by_theta_is_the_transpose_of_the_penalties(table):
    X, _ = table
    space = Space.of(X * np.arange(1, 7), np.ones(160), np.array([0, 0, 1, 1, 2, 2]), 2)
    random = np.random.default_rng(0)
    theta, slope = random.normal(size=space.size), random.normal(size=9)
    zero = space.penalties(np.zeros(space.size))
    moved = space.penalties(theta) - zero
    assert slope[:-1] @ moved == pytest.approx(space.pull(slope) @ theta)


def test_one_group_without_naive_bayes_is_logistic_regression_at_the_penalty_found(table):
    X, y = table
    model = PenalizedLogisticRegression(
        groups=np.zeros(6), naive_bayes=False, shrinkage=1e9, random_state=0
    ).fit(X, y)
    # Of two columns ±w/2 with exp(λ) each, a single one has exp(λ)/2, and C = 1 / exp(λ).
    C = float(np.exp(-model.log_penalties_.mean()))
    other = LogisticRegression(C=C, tol=1e-10).fit(X, y)
    assert np.ptp(model.log_penalties_) < 1e-3
    assert model.coef_.shape == other.coef_.shape == (1, 6)
    assert np.allclose(model.coef_, other.coef_, atol=2e-3)
    assert np.allclose(model.predict_proba(X), other.predict_proba(X), atol=2e-3)


def test_ridge_is_the_closed_form_at_the_penalties_found():
    X, y = load_diabetes(return_X_y=True)
    model = PenalizedRidge(random_state=0).fit(X, y)
    scaled = X * np.exp(-model.log_penalties_ / 2)
    other = Ridge(alpha=2.0, tol=1e-12).fit(scaled, y)
    assert np.allclose(model.predict(X), other.predict(scaled), rtol=1e-3)
    assert model.coef_.shape == (10,)


def test_features_that_say_nothing_are_penalised_more(table):
    X, y = table
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


def test_naive_bayes_scores_of_a_row_do_not_depend_on_its_fold():
    random = np.random.default_rng(0)
    X, y, folds = random.poisson(1.0, (60, 5)).astype(float), np.arange(60) % 3, np.arange(60) % 4
    sums = ClassSums.of(X, y, np.ones(60), 3, folds)
    rest = folds != 2
    alone = ClassSums.of(X[rest], y[rest], np.ones(45), 3, np.array([0, 1, 9, 2])[folds[rest]])
    ratio = sums.scores_within(set())[~rest] / (X[~rest] @ alone.weights(set()))
    assert np.allclose(ratio, ratio[0, 0])


def test_naive_bayes_lowers_the_loss_on_counts_of_words():
    random = np.random.default_rng(0)
    y = np.arange(400) % 4
    rates = random.gamma(0.3, size=(4, 300))
    X = scipy.sparse.csr_array(random.poisson(0.03 * rates[y]).astype(float))
    losses = []
    for naive_bayes in (False, True):
        model = PenalizedLogisticRegression(naive_bayes=naive_bayes, random_state=0)
        P = model.fit(X[:200], y[:200]).predict_proba(X[200:])
        losses.append(-np.log(P[np.arange(200), y[200:]]).mean())
    assert losses[1] < 0.97 * losses[0]


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
    model = HyperCleaningRegressor(random_state=0).fit(scaled, y, trusted=np.arange(150, 200))
    assert model.label_issues_[wrong].all()
    assert model.label_issues_[~wrong].mean() < 0.02
    assert model.sample_weight_[wrong].max() < model.sample_weight_[~wrong].min()
    assert (model.sample_weight_[150:] == 1).all()
    truth = Ridge(alpha=1e-6).fit(scaled[~wrong], y[~wrong])
    assert np.allclose(model.predict(scaled), truth.predict(scaled), atol=0.05)


def test_without_trusted_rows_the_best_half_serves_with_a_warning(wrong_numbers):
    X, y, wrong = wrong_numbers
    with pytest.warns(UserWarning, match="no trusted rows"):
        model = make_pipeline(StandardScaler(), HyperCleaningRegressor(random_state=0)).fit(X, y)
    found = model[-1].label_issues_
    assert found[wrong].all()
    assert found[~wrong].mean() < 0.05


def test_trusted_rows_pass_through_a_pipeline_as_a_mask(wrong_numbers):
    X, y, _ = wrong_numbers
    trusted = np.arange(200) >= 150
    pipe = make_pipeline(StandardScaler(), HyperCleaningRegressor(random_state=0))
    named = pipe.fit(X, y, hypercleaningregressor__trusted=trusted)[-1].coef_
    with sklearn.config_context(enable_metadata_routing=True):
        asks = HyperCleaningRegressor(random_state=0).set_fit_request(trusted=True)
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
