"""The estimators are what scikit-learn users expect."""

import pickle

import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import load_digits
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from bilevel.sklearn import HyperCleaner, PenalizedLogisticRegression

ESTIMATORS = [HyperCleaner(random_state=0), PenalizedLogisticRegression(random_state=0)]


@parametrize_with_checks(ESTIMATORS)
def test_estimator_passes_every_check_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X / 16, y


@pytest.fixture(scope="module")
def noisy(digits):
    X, y = digits
    random = np.random.default_rng(0)
    labels = y.copy()
    wrong = (random.random(len(y)) < 0.3) & (np.arange(len(y)) < 1300)
    labels[wrong] = (y[wrong] + random.integers(1, 10, wrong.sum())) % 10
    return X, labels, wrong


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_same_random_state_gives_the_same_bits_and_survives_pickling(estimator, digits):
    X, y = digits
    first = estimator.fit(X[:400], y[:400])
    again = pickle.loads(pickle.dumps(first)).fit(X[:400], y[:400])
    assert np.array_equal(first.coef_, again.coef_)
    assert np.array_equal(first.predict(X), pickle.loads(pickle.dumps(first)).predict(X))


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_sparse_rows_give_the_model_of_dense_rows(estimator, digits):
    X, y = digits
    dense = estimator.fit(X[:400], y[:400]).predict_proba(X[400:])
    sparse = estimator.fit(scipy.sparse.csr_array(X[:400]), y[:400]).predict_proba(X[400:])
    assert np.abs(dense - sparse).mean() < 0.02
    assert np.mean(dense.argmax(1) == sparse.argmax(1)) > 0.97


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_estimator_works_at_the_end_of_a_pipeline(estimator, digits):
    X, y = digits
    model = make_pipeline(StandardScaler(), estimator).fit(X[:1000], y[:1000])
    assert model.score(X[1000:], y[1000:]) > 0.88


def test_wrong_labels_get_low_quality_and_trusted_rows_weight_one(noisy):
    X, labels, wrong = noisy
    trusted = np.arange(len(labels)) >= 1300
    cleaner = HyperCleaner(random_state=0).fit(X, labels, trusted=trusted)
    assert cleaner.label_quality_[wrong].mean() < 0.1 < 0.7 < cleaner.label_quality_[~wrong].mean()
    assert cleaner.sample_weight_[wrong].mean() < cleaner.sample_weight_[~wrong & ~trusted].mean()
    assert (cleaner.sample_weight_[trusted] == 1).all()
    assert not cleaner.label_issues_[trusted].any()
    assert cleaner.label_issues_[wrong].mean() > 0.8
    assert cleaner.label_issues_[~wrong].mean() < 0.05


def test_trusted_rows_apart_and_as_a_mask_give_the_same_model(noisy):
    X, labels, _ = noisy
    trusted = np.arange(len(labels)) >= 1300
    mask = HyperCleaner(random_state=0).fit(X, labels, trusted=trusted)
    apart = HyperCleaner(random_state=0).fit(
        X[~trusted], labels[~trusted], X[trusted], labels[trusted]
    )
    assert np.array_equal(mask.coef_, apart.coef_)
    assert np.array_equal(mask.label_issues_[~trusted], apart.label_issues_)


def test_text_labels_come_back_as_text(noisy):
    X, labels, _ = noisy
    names = np.array([f"digit {n}" for n in range(10)])
    cleaner = HyperCleaner(random_state=0).fit(
        X, names[labels], trusted=np.arange(len(labels)) >= 1300
    )
    assert set(cleaner.likely_label_) <= set(names)
    assert np.mean(cleaner.predict(X[1300:]) == names[labels[1300:]]) > 0.9


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"trusted": np.zeros(1797)}, "marks 0 of 1797"),
        ({"trusted": np.ones(5)}, r"shape \(5,\)"),
        ({"X_trusted": np.zeros((3, 64)), "y_trusted": [0, 1, 77]}, "77"),
    ],
)
def test_bad_trusted_rows_are_named(digits, arguments, text):
    X, y = digits
    with pytest.raises(ValueError, match=text):
        HyperCleaner(random_state=0).fit(X, y, **arguments)
