"""Gross errors among numbers: found, kept apart from hard rows, and told with their range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict

from bilevel.apps.cleaning import numbers
from bilevel.apps.cleaning.numbers import _two_laws, find_wrong_numbers

from .dirty_tables import Command

Array = np.ndarray[Any, Any]


def prices(rows: int = 250, rate: float = 0.08) -> tuple[pd.DataFrame, Array, Array, Array]:
    """Prices whose noise grows with the size; some misplace the decimal point."""
    random = np.random.default_rng(0)
    size, town = random.uniform(1, 5, rows), random.integers(3, size=rows)
    right = 20 * size + 30 * town + size * random.normal(size=rows)
    wrong = random.random(rows) < rate
    given = np.where(wrong, right * random.choice([10, 0.1], rows), right)
    return pd.DataFrame({"size": size, "town": np.array(list("abc"))[town]}), given, right, wrong


def test_a_misplaced_decimal_point_is_found_and_put_right() -> None:
    table, given, right, wrong = prices()
    found = find_wrong_numbers(table, given)
    assert roc_auc_score(wrong, found.wrong) > 0.99
    assert found.flagged[wrong].mean() > 0.9
    assert found.flagged[~wrong].mean() < 0.02
    assert np.abs(found.likely - right)[wrong].mean() < 0.1 * right.std()
    assert 0.8 < ((found.low <= right) & (right <= found.high)).mean() < 0.99
    low, expected, high = found.count
    assert low == 0  # nobody has checked a row
    assert abs(expected - wrong.sum()) < 0.2 * wrong.sum()
    assert wrong.sum() < high
    assert found.precision is None


def test_right_numbers_are_left_alone() -> None:
    table, _, right, _ = prices()
    found = find_wrong_numbers(table, right)
    assert found.flagged.mean() < 0.01
    assert found.count[0] == 0


def test_trusted_rows_support_what_is_said_of_the_flags() -> None:
    table, given, right, wrong = prices()
    trusted = np.arange(len(given)) < 60
    found = find_wrong_numbers(table, np.where(trusted, right, given), trusted=trusted)
    assert not found.wrong[trusted].any()
    assert found.precision is not None
    assert found.precision[0] <= wrong[found.flagged].mean() <= found.precision[2]
    assert found.checked is not None
    assert found.checked[0] == 60
    chosen = find_wrong_numbers(
        table, np.where(trusted, right, given), trusted=trusted, fair=~trusted
    )
    assert chosen.precision is chosen.checked is None


def test_on_diabetes_it_ranks_above_residuals_of_a_forest_in_the_mean() -> None:
    X, y = load_diabetes(return_X_y=True)
    areas = []
    for seed in (10, 11):
        random = np.random.default_rng(seed)
        wrong = random.random(len(y)) < 0.1
        given = np.where(wrong, random.permutation(y) * random.choice([3, 0.1], len(y)), y)
        forest = RandomForestRegressor(40, max_features=0.4, random_state=0)
        plain = np.abs(given - cross_val_predict(forest, X, given, cv=5))
        found = find_wrong_numbers(X, given)
        areas.append([roc_auc_score(wrong, score) for score in (found.wrong, plain)])
        assert wrong[found.flagged].mean() > 0.8
    ours, theirs = np.mean(areas, axis=0)
    assert ours > theirs + 0.01


def test_the_two_laws_are_told_apart_by_bayes() -> None:
    random = np.random.default_rng(0)
    gross = np.arange(3000) < 300
    error = np.where(gross, random.normal(scale=10, size=3000), random.normal(size=3000))
    p = _two_laws(error, np.ones(3000), np.zeros(3000, bool))
    law = 0.1 * np.exp(-((error / 10) ** 2) / 2) / 10
    truth = law / (law + 0.9 * np.exp(-(error**2) / 2))
    assert np.abs(p - truth).mean() < 0.02


@pytest.mark.parametrize("kind", ["far tails", "all alike"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_gross_errors_of_another_law_than_the_normal_are_told_apart(kind: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    right = 0.4 * random.normal(size=500)
    off = 2 * random.standard_cauchy(75) if kind == "far tails" else np.full(75, 2.0)
    found = _two_laws(right + np.r_[off, np.zeros(425)], np.ones(500), np.zeros(500, bool)) > 0.5
    assert found[:75][np.abs(off) > 1.5].mean() > 0.9
    assert found[75:].mean() < 0.01


def test_numbers_without_any_error_are_right() -> None:
    size = np.random.default_rng(0).normal(size=60)
    for values in (np.full(60, 7.0), np.r_[1000.0, np.full(59, 7.0)]):
        wrong = find_wrong_numbers(pd.DataFrame({"size": size}), values).wrong
        assert ((wrong > 0.5) == (values > 7)).all()
    assert (_two_laws(np.zeros(60), np.ones(60), np.zeros(60, bool)) < 0.5).all()


def test_laws_that_are_equally_likely_share_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(error: Array, scale: Array, trusted: Array, tail: float, law: object) -> Any:
        return -100.0, np.full(4, float(tail == 3))  # one of three tails

    monkeypatch.setattr(numbers, "_by_em", fit)
    assert np.allclose(_two_laws(np.zeros(4), np.ones(4), np.zeros(4, bool)), 1 / 3)


def test_the_command_finds_out_that_labels_are_numbers_and_predicts_them(clean: Command) -> None:
    table, given, _, wrong = prices()
    clean.write(train=table.assign(label=np.round(given, 2)).mask(np.eye(250, 3, -9) > 0))
    shown = clean("train.csv")
    assert shown.code == 0, shown.err
    assert "judged as numbers" in " ".join(shown.err.split())
    assert "of 249 values are wrong; it may be up to" in shown.out
    found = pd.read_csv(clean.folder / "cleaned" / "labels.csv")
    assert list(found)[-5:] == ["likely_value", "likely_low", "likely_high", "suspicion", "flagged"]
    assert roc_auc_score(wrong[found.label.notna()], found.suspicion.dropna()) > 0.99
    assert found.likely_value[found.label.isna()].notna().all()
    assert "likely value" in clean.report()
    assert clean.predict("train.csv").code == 0
    new = pd.read_csv(clean.folder / "predicted.csv")
    assert np.abs(new.predicted - found.likely_value)[~wrong].median() < 5
    assert (new.low < new.high).all()


@pytest.mark.parametrize("task", ["regression", "numbers"])
def test_labels_that_are_no_numbers_are_refused(clean: Command, task: str) -> None:
    clean.write(train=pd.DataFrame({"x": range(30), "label": ["ant", "bee", "cat"] * 10}))
    shown = clean("train.csv", "--task", task)
    assert shown.code == 2
    words = "are not numbers" if task == "regression" else "'numbers' is unknown: choose from auto"
    assert words in " ".join(shown.err.split())


def test_trusted_numbers_may_be_new_and_written_in_another_style(clean: Command) -> None:
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"size": random.uniform(1, 3, 200).round(4)})
    price = (10 * frame["size"] + random.normal(size=200)).round(2)
    wrong = price.where(frame.index > 9, 10 * price)
    frame.assign(label=wrong).to_csv(clean.folder / "train.csv", sep=";", decimal=",", index=False)
    rows = np.r_[5:10, 10:30]
    clean.write(trusted=frame.assign(label=price).iloc[rows])
    shown = clean("train.csv", "--trusted", "trusted.csv")
    assert shown.code == 0, shown.err
    told = " ".join(shown.err.split())
    assert "25 trusted rows are rows of your table; 5 of them have another label there" in told
    assert "of 175 values" in shown.out
    assert "no label" not in told
    found = pd.read_csv(clean.folder / "cleaned" / "labels.csv", sep=";", decimal=",")
    assert np.flatnonzero(found.flagged).tolist() == list(range(10))
