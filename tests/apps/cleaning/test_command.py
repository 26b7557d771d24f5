"""`bilevel clean`: what it takes in, and what it finds."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

import bilevel

from .dirty_tables import NAMES, Command, dirty, table, with_gaps

TRUSTED = ("--trusted", "trusted.csv")
NEW = ["likely_label", "likely_probability", "suspicion", "flagged"]


# Input


def test_the_users_table_comes_back_with_four_columns_more(clean: Command) -> None:
    case = dirty()
    clean.write(train=case.train, trusted=case.trusted)
    found = clean.labels("train.csv", "--trusted", "trusted.csv")
    assert list(found)[-4:] == NEW
    assert list(found)[-5] == "label"
    assert found.label.tolist() == case.train.label.tolist()
    assert set(found.likely_label) == set(NAMES)
    assert found[["suspicion", "likely_probability"]].to_numpy().min() >= 0
    assert found[["suspicion", "likely_probability"]].to_numpy().max() <= 1
    assert roc_auc_score(case.wrong, found.suspicion) > 0.95
    assert found.flagged.dtype == bool
    assert found.flagged[case.wrong].mean() > 0.8
    assert found.flagged[~case.wrong].mean() < 0.15


def test_missing_values_are_no_hindrance_and_trusted_rows_are_not_needed(clean: Command) -> None:
    case = dirty()
    clean.write(train=with_gaps(case.train, 0))
    found = clean.labels("train.csv")
    assert roc_auc_score(case.wrong, found.suspicion) > 0.9


def test_categories_alone_are_enough_to_learn_from(clean: Command) -> None:
    case = dirty()
    right = table(150, seed=1).label
    codes = {"ant": 7, "bee": 1, "cat": 30}
    clean.write(train=pd.DataFrame({"code": right.map(codes), "label": case.train.label}))
    found = clean.labels("train.csv", "--category", "code")
    assert (found.flagged == case.wrong).all()
    assert (found.likely_label == right).all()


def test_whole_numbers_are_the_same_labels_with_and_without_a_point(clean: Command) -> None:
    case = dirty()
    number = {"ant": 3, "bee": 10, "cat": -1}
    clean.write(
        train=case.train.assign(label=case.train.label.map(number)),
        trusted=case.trusted.assign(label=case.trusted.label.map(number).astype(float)),
    )
    assert ",3.0\n" in (clean.folder / "trusted.csv").read_text()
    found = clean.labels("train.csv", *TRUSTED)
    assert found.label.tolist() == [str(number[name]) for name in case.train.label]
    assert roc_auc_score(case.wrong, found.suspicion) > 0.95


def test_an_ignored_column_may_be_in_one_file_only(clean: Command) -> None:
    case = dirty()
    clean.write(train=case.train.assign(batch=case.train.width), trusted=case.trusted)
    assert clean("train.csv", *TRUSTED, "--ignore", "batch").code == 0


def test_columns_are_explained_and_nothing_is_written(clean: Command) -> None:
    case = dirty()
    clean.write(train=case.train.assign(id=range(150), empty=""))
    shown = clean("train.csv", "--explain-columns", "--category", "width")
    assert shown.code == 0
    assert shown.out.splitlines() == [
        "width   category  as you said",
        "height  number",
        "colour  category  3 values",
        "id      ignored   numbers the rows: an id",
        "empty   ignored   empty",
    ]
    assert not (clean.folder / "cleaned").exists()


# Trusted rows of the same file


@pytest.mark.parametrize("marks", [(True, False), ("yes", "no"), (1.0, None)])
def test_marked_rows_are_trusted_and_all_rows_come_back_in_their_order(
    clean: Command, marks: tuple[object, object]
) -> None:
    case = dirty()
    whole = pd.concat([case.train, case.trusted], ignore_index=True)
    whole["ok"] = [marks[1]] * 150 + [marks[0]] * 60
    shuffled = whole.sample(frac=1, random_state=0)
    clean.write(train=shuffled)
    found = clean.labels("train.csv", "--trusted", "ok")
    doubtful = shuffled.index < 150
    assert found.label.tolist() == shuffled.label.tolist()
    assert not found[~doubtful].suspicion.any()
    assert roc_auc_score(case.wrong[shuffled.index[doubtful]], found.suspicion[doubtful]) > 0.95


def test_decisions_of_a_review_are_trusted_by_their_row(clean: Command) -> None:
    case, right = dirty(), table(150, seed=1).label
    rows = np.arange(150)[::3]
    decisions = pd.DataFrame({"row": rows + 1, "label": right[rows], "decision": "right"})
    clean.write(train=case.train, decisions=decisions)
    found = clean.labels("train.csv", "--trusted", "decisions.csv")
    assert not found.suspicion[rows].any()
    assert found.likely_label[rows].tolist() == right[rows].tolist()
    assert found.label.tolist() == case.train.label.tolist()  # as it stands in the file


# How well it finds them


def test_wrong_labels_of_digits_are_found(clean: Command) -> None:
    X, y = bilevel.datasets.load("digits").train
    labels, _, wrong = bilevel.datasets.corrupt(y[300:900], 0.3, classes=10, seed=0)
    table = pd.DataFrame(X[:900]).assign(label=np.r_[y[:300], labels])
    clean.write(train=table[300:], trusted=table[:300])
    found = clean.labels("train.csv", "--trusted", "trusted.csv")
    assert roc_auc_score(wrong, found.suspicion) > 0.98
    assert found.flagged[wrong].mean() > 0.9
    assert found.flagged[~wrong].mean() < 0.05
    assert (found.likely_label == y[300:900].astype(str)).mean() > 0.93


def test_leaks_and_ids_are_told(clean: Command) -> None:
    case = dirty()
    clean.write(train=case.train.assign(code=case.train.label.str.upper(), key=range(1000, 1150)))
    shown = clean("train.csv")
    assert shown.code == 0
    assert "column 'code' alone determines nearly every label" in " ".join(shown.err.split())
    assert "column 'key' is left out (numbers the rows: an id)" in " ".join(shown.err.split())


def test_trusted_labels_may_differ_in_blanks_and_case(clean: Command) -> None:
    case = dirty(60, 60)
    clean.write(train=case.train, plain=case.trusted)
    clean.write(spelled=case.trusted.assign(label=" " + case.trusted.label.str.upper()))
    expected = clean.labels("train.csv", "--trusted", "plain.csv")
    found = clean.labels("train.csv", "--trusted", "spelled.csv", "--force")
    pd.testing.assert_frame_equal(found, expected)


def test_labels_that_are_one_number_are_told(clean: Command) -> None:
    case = dirty(60)
    labels = case.train.label.map({"ant": "1", "bee": "1.0", "cat": "2"})
    clean.write(train=case.train.assign(label=labels))
    shown = clean("train.csv", "--explain-columns")
    assert shown.code == 0
    shown = clean("train.csv")
    assert "the labels ['1', '1.0'] are the same number" in " ".join(shown.err.split())
    labels = labels.map({"1": "Ant", "1.0": "ant", "2": "cat"})
    clean.write(train=case.train.assign(label=labels))
    shown = clean("train.csv", "--force")
    assert "the labels ['Ant', 'ant'] differ only in case" in " ".join(shown.err.split())


def test_infinite_numbers_count_as_missing(clean: Command) -> None:
    random = np.random.default_rng(0)
    size = random.normal(size=80)
    price = np.where(np.arange(80) == 3, np.inf, 5 * size + random.normal(size=80))
    clean.write(train=pd.DataFrame({"size": size, "price": price}))
    shown = clean("train.csv", "--label", "price")
    assert shown.code == 0, shown.err
    assert "one row has no label (['inf'] is taken for none)" in " ".join(shown.err.split())


def test_labels_that_nothing_tells_are_not_flagged_but_for_a_half(clean: Command) -> None:
    random = np.random.default_rng(0)
    labels = np.array([*"abcdefghij"])[random.integers(10, size=90)]
    clean.write(
        train=pd.DataFrame(random.normal(size=(90, 3)), columns=[*"xyz"]).assign(label=labels)
    )
    assert clean.labels("train.csv").flagged.sum() <= 45
