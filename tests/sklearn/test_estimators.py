"""The estimators are what scikit-learn users expect."""

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from bilevel.apps.cleaning import experts
from bilevel.apps.cleaning.columns import recognise
from bilevel.apps.cleaning.features import Encoder
from bilevel.sklearn import (
    HyperCleaner,
    HyperCleaningRegressor,
    PenalizedLogisticRegression,
    PenalizedRidge,
)

HYPER = HyperCleaner("hyper-cleaning", random_state=0)
QUICK = {"folds": 2, "random_state": 0}  # the checks fit some hundred times
ESTIMATORS = [HYPER, PenalizedLogisticRegression(**QUICK)]


REGRESSORS = [
    PenalizedRidge(**QUICK),
    HyperCleaningRegressor(random_state=0),
    HyperCleaningRegressor("hyper-cleaning", random_state=0),
]


@pytest.fixture
def small_forests(monkeypatch):
    """The checks fit some hundred times, and ask nothing about how good an answer is."""
    monkeypatch.setattr(experts, "_TREES", 8)


@pytest.mark.usefixtures("small_forests")
@pytest.mark.filterwarnings("ignore:no trusted rows:UserWarning")
@parametrize_with_checks([HyperCleaner(random_state=0), *ESTIMATORS, *REGRESSORS])
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
    cleaner = HYPER.fit(X, labels, trusted=trusted)
    assert cleaner.label_quality_[wrong].mean() < 0.1 < 0.7 < cleaner.label_quality_[~wrong].mean()
    assert cleaner.sample_weight_[wrong].mean() < cleaner.sample_weight_[~wrong & ~trusted].mean()
    assert (cleaner.sample_weight_[trusted] == 1).all()
    assert not cleaner.label_issues_[trusted].any()
    assert cleaner.label_issues_[wrong].mean() > 0.8
    assert cleaner.label_issues_[~wrong].mean() < 0.05


def test_trusted_rows_apart_and_as_a_mask_give_the_same_model(noisy):
    X, labels, _ = noisy
    trusted = np.arange(len(labels)) >= 1300
    mask = clone(HYPER).fit(X, labels, trusted=trusted)
    apart = clone(HYPER).fit(X[~trusted], labels[~trusted], X[trusted], labels[trusted])
    assert np.array_equal(mask.coef_, apart.coef_)
    assert np.array_equal(mask.label_issues_[~trusted], apart.label_issues_)


def test_text_labels_come_back_as_text(noisy):
    X, labels, _ = noisy
    names = np.array([f"digit {n}" for n in range(10)])
    cleaner = HYPER.fit(X, names[labels], trusted=np.arange(len(labels)) >= 1300)
    assert set(cleaner.likely_label_) <= set(names)
    assert np.mean(cleaner.predict(X[1300:]) == names[labels[1300:]]) > 0.9


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"trusted": np.zeros(1797)}, "marks 0 of 1797"),
        ({"trusted": np.ones(5)}, "row numbers below 1797, got"),
        ({"X_trusted": np.zeros((3, 64)), "y_trusted": [0, 1, 77]}, "77"),
        ({"trusted": np.where(np.arange(1797) < 9, 1, np.nan)}, "booleans or row numbers"),
        ({"trusted": ["yes", "no", *[None] * 1795]}, "booleans or row numbers"),
        ({"trusted": [-1798]}, "row numbers below 1797"),
        ({"X_trusted": np.zeros((3, 64))}, "X_trusted needs y_trusted"),
        ({"y_trusted": [0, 1, 2]}, "y_trusted needs X_trusted"),
    ],
)
def test_bad_trusted_rows_are_named(digits, arguments, text):
    X, y = digits
    with pytest.raises(ValueError, match=text):
        HYPER.fit(X, y, **arguments)


def test_experts_take_tables_of_any_kind_and_rows_by_number_or_mask():
    random = np.random.default_rng(0)
    right = np.array(["no", "yes"])[np.arange(120) % 2]
    table = pd.DataFrame(
        {
            "colour": np.where(random.random(120) < 0.9, right, "grey"),
            "size": (right == "yes") + 0.5 * random.normal(size=120),
        }
    ).mask(random.random((120, 2)) < 0.05)
    labels = right.copy()
    labels[:10] = np.where(right[:10] == "no", "yes", "no")
    rows = np.arange(90, 120)
    by_number, by_mask = (
        HyperCleaner(random_state=0).fit(table, labels, trusted=trusted)
        for trusted in (rows, np.arange(120) >= 90)
    )
    assert np.array_equal(by_number.label_quality_, by_mask.label_quality_)
    assert by_number.label_issues_[:10].mean() > 0.8
    assert not by_number.label_issues_[rows].any()
    assert np.mean(by_number.predict(table) == right) > 0.9
    assert list(by_number.feature_names_in_) == ["colour", "size"]
    apart = HyperCleaner(random_state=0).fit(table[:90], labels[:90], table[90:], labels[90:])
    assert np.allclose(apart.label_quality_, by_number.label_quality_[:90])


def test_an_unknown_method_is_named(digits):
    with pytest.raises(ValueError, match="'magic'"):
        HyperCleaner(method="magic").fit(*digits)
    with pytest.raises(ValueError, match="'magic'"):
        HyperCleaningRegressor(method="magic").fit(*digits)


def test_a_regressor_flags_gross_errors_of_any_table_and_next_to_nothing_where_all_is_right():
    random = np.random.default_rng(0)
    rooms, district = random.integers(1, 7, 300), random.choice(["north", "south", "old"], 300)
    table = pd.DataFrame({"rooms": rooms, "district": district}).mask(
        random.random((300, 2)) < 0.03
    )
    price = 100.0 * rooms**1.5 * (1 + (district == "old")) * np.exp(0.1 * random.normal(size=300))
    assert HyperCleaningRegressor(random_state=0).fit(table, price).label_issues_.mean() < 0.02
    wrong = np.arange(300) < 30
    noisy = np.where(wrong, 10 * price, price)
    trusted = np.arange(250, 300)
    model = HyperCleaningRegressor(random_state=0).fit(table, noisy, trusted=trusted)
    assert model.label_issues_[wrong].mean() > 0.9
    assert model.label_issues_[~wrong].mean() < 0.02
    assert (model.sample_weight_[trusted] == 1).all()
    assert model.score(table, price) > 0.9


def test_numbers_in_either_order_of_memory_give_the_same_bits():
    X = np.random.default_rng(0).normal(size=(200, 10))
    tables = pd.DataFrame(X), pd.DataFrame(X, copy=False)
    one, other = (Encoder.fit(t, recognise(t)).transform(t).linear for t in tables)
    assert np.array_equal(one, other)


def test_an_array_may_follow_a_dataframe_and_the_other_way_round(small_forests):
    X, y = load_digits(n_class=3, return_X_y=True)
    X, y = X[:90, 18:22], y[:90]
    frame = pd.DataFrame(X, columns=[*"abcd"])
    of_frame, of_array = (HyperCleaner(random_state=0).fit(rows, y) for rows in (frame, X))
    with pytest.warns(UserWarning, match="valid feature names"):
        assert np.array_equal(of_frame.predict(X), of_frame.predict(frame))
    with pytest.warns(UserWarning, match="fitted without feature names"):
        assert np.array_equal(of_array.predict(frame), of_array.predict(X))
    with pytest.warns(UserWarning, match="valid feature names"):
        apart = HyperCleaner(random_state=0).fit(frame[30:], y[30:], X[:30], y[:30])
    same = HyperCleaner(random_state=0).fit(frame[30:], y[30:], frame[:30], y[:30])
    assert np.array_equal(apart.label_quality_, same.label_quality_)


def test_an_empty_list_of_trusted_rows_is_none(small_forests):
    X, y = load_digits(n_class=2, return_X_y=True)
    empty = HyperCleaner(random_state=0).fit(X[:60], y[:60], trusted=[])
    assert np.array_equal(
        empty.label_quality_, HyperCleaner(random_state=0).fit(X[:60], y[:60]).label_quality_
    )
