"""How many labels are wrong: what is stated holds, and where nothing can be known that is said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from bilevel.apps.cleaning import words
from bilevel.apps.cleaning.counting import (
    agreeing,
    by_audit,
    half_way,
    held_back,
    how_many,
    how_precise,
    most_by_sure_rows,
    share,
    with_every_class,
)
from bilevel.apps.cleaning.engine import Findings, find_wrong_labels

from .dirty_tables import Command, dirty, table

Array = np.ndarray[Any, Any]


@pytest.mark.parametrize(("hits", "rows"), [(0, 20), (3, 20), (57, 60)])
def test_the_interval_of_a_share_is_wilsons(hits: int, rows: int) -> None:
    truth = binomtest(hits, rows).proportion_ci(0.9, method="wilson")
    assert np.allclose(share(hits, rows)[::2], [truth.low, truth.high], atol=1e-4)
    count = by_audit((rows, hits), 1000, (0.0, 0.0, 1000.0), sure=False)
    assert count is not None
    assert count[::2] == pytest.approx((1000 * truth.low, 1000 * truth.high), abs=0.1)
    assert count[1] == count[0]


@pytest.mark.parametrize("wrong", [0, 80])
def test_checked_rows_that_contradict_the_model_may_not_be_a_fair_sample(wrong: int) -> None:
    model = (180.0, 200.0, 220.0)
    assert by_audit((100, wrong), 1000, model, sure=False) is None
    sure = by_audit((100, wrong), 1000, model, sure=True)
    assert sure is not None
    assert sure[::2] == pytest.approx([1000 * part for part in share(wrong, 100)[::2]])
    assert by_audit((9, 2), 1000, model, sure=True) is None  # too few


def test_without_checked_rows_the_interval_begins_at_zero_and_no_precision_is_stated() -> None:
    wrong, given, none = np.full(100, 0.9), np.zeros(100, int), np.zeros(0, int)
    assert how_many(wrong, given, given, none, none)[0] == 0
    assert how_precise(30, wrong, wrong, np.zeros(19)) is None
    assert how_precise(0, wrong, wrong, np.zeros(30)) is None


def test_the_share_of_wrong_labels_among_flags_is_in_its_interval() -> None:
    inside = []
    for seed in range(200):
        random = np.random.default_rng(seed)
        wrong = random.random(1000) < 0.15
        doubts = np.clip(random.normal(np.where(wrong, 0.8, 0.3), 0.2), 0, 1)
        trusted = np.clip(random.normal(0.3, 0.2, 80), 0, 1)  # right rows, of the same kind
        interval = how_precise(150, doubts * 0.15 / doubts.mean(), doubts, trusted)
        assert interval is not None
        low, expected, high = interval
        assert low <= expected <= high
        inside.append(low <= wrong[np.argsort(-doubts)[:150]].mean() <= high)
    assert np.mean(inside) > 0.85  # 90 % is stated


def test_flags_that_checked_rows_show_to_be_false_alarms_are_held_back() -> None:
    random = np.random.default_rng(0)
    doubts = random.random(1000)  # all labels are right, and as doubtful as those of checked rows
    wrong = 0.2 * doubts
    assert held_back(200, wrong, doubts, random.random(2000))[0] <= 24
    assert held_back(200, wrong, doubts, np.zeros(0)) == (200, None)  # nobody knows better
    number, precise = held_back(200, wrong, doubts, 0.7 * random.random(200))
    assert number == 200
    assert precise is not None
    assert precise[2] == 1


def test_sure_rows_that_keep_to_their_labels_speak_against_wrong_ones_elsewhere() -> None:
    random = np.random.default_rng(0)
    p = random.uniform(0.5, 1, 2000)
    best = random.integers(2, size=2000)
    P = np.where(np.arange(2) == best[:, None], p[:, None], 1 - p[:, None])
    hard = np.where(random.random(2000) < p, best, 1 - best)  # as uncertain as it is stated
    noisy = np.where(random.random(2000) < 0.3, 1 - best, best)
    assert (hard != best).mean() > 0.2
    assert most_by_sure_rows(P, hard) < 0.12 * 2000
    assert 0.25 * 2000 < most_by_sure_rows(P, noisy) < 0.4 * 2000


def test_rows_that_the_plain_experts_call_wrong_are_met_half_way() -> None:
    right = np.arange(600) % 2
    assert half_way(4, np.eye(2)[right], right) == 4
    assert half_way(4, np.eye(2)[1 - right], right) == 302


def test_a_class_of_which_no_row_is_sure_keeps_its_likeliest_rows() -> None:
    minor, none = np.random.default_rng(0).uniform(0, 0.3, 1000), np.zeros(0, int)
    beliefs = np.column_stack([1 - minor, minor])
    kept = with_every_class(beliefs, none)
    own = kept.argmax(1) == 1
    assert minor.sum() / 2 - 1 <= own.sum() < minor.sum()
    assert minor[own].min() > minor[~own].max()
    by_trusted_rows = with_every_class(beliefs**9, np.arange(20) % 3 // 2)  # six of twenty
    assert 1000 * share(6, 20)[0] / 2 - 1 <= by_trusted_rows.argmax(1).sum() < 150
    even = np.column_stack([1 - minor / 0.3, minor / 0.3])
    assert np.allclose(with_every_class(even, none), even)


def hard_table() -> tuple[pd.DataFrame, Array]:
    """Right labels, of which the columns tell about four of five."""
    random = np.random.default_rng(0)
    X = random.normal(size=(300, 2))
    return pd.DataFrame(X), (4 * X[:, 0] + random.logistic(size=300) > 0).astype(int)


@pytest.fixture(scope="module")
def found() -> Findings:
    X, labels = hard_table()
    result: Findings = find_wrong_labels(X, labels)
    return result


def test_a_hard_table_of_right_labels_is_not_accused(found: Findings) -> None:
    assert found.count[0] == 0
    assert found.precision is None
    assert found.flagged.mean() < 0.12
    assert found.flagged.sum() <= found.count[2]
    assert ", or none." in words.count(found)
    assert "%" not in words.flags(found)
    assert words.cautions(found) == [words.UNSEEN]
    assert "Check 20 rows" in words.UNSEEN
    assert "Check 20 rows" in words.BLIND


def test_each_sentence_says_what_is_known(found: Findings) -> None:
    sure = replace(found, count=(20.0, 31.4, 40.0), checked=(40, 30, 0.6, 0.8))
    assert words.count(sure) == (
        "About 31 of 300 labels are wrong; with 90% confidence between 20 and 40."
    )
    assert "about 70% of the flagged labels should be wrong (with 90% confidence between" in (
        words.flags(replace(sure, precision=(0.5, 0.7, 0.9)))
    )
    assert words.flags(replace(sure, precision=(0.0, 0.3, 0.6))).endswith(
        "; with 90% confidence at most 60% of the flagged labels are wrong."
    )
    assert words.flags(replace(sure, precision=(0.0, 0.3, 1.0))).endswith(
        "; too few rows are checked to tell how many of these are wrong."
    )
    assert words.cautions(sure) == []
    assert words.cautions(replace(sure, count=(0.0, 9.0, 20.0))) == [words.NOTHING]
    assert words.cautions(replace(found, blind=True)) == [words.BLIND]
    assert words.cautions(replace(found, flagged=np.zeros(300, bool))) == []
    assert words.flags(replace(found, flagged=np.arange(300) < 1)).startswith("1 disagrees with")


def test_decisions_on_rows_picked_at_random_give_the_number_without_a_model(
    clean: Command,
) -> None:
    case, right = dirty(), table(150, seed=1).label
    rows = np.random.default_rng(0).permutation(150)[:40]
    decisions = pd.DataFrame({"row": rows + 1, "label": right[rows]})
    wrong = case.wrong[rows]
    decisions["decision"] = np.where(wrong, "wrong", "right")
    decisions["picked"] = "at random"
    clean.write(train=case.train, decisions=decisions)
    shown = clean("train.csv", "--trusted", "decisions.csv")
    assert shown.code == 0, shown.err
    assert f"of 40 rows that you decided on, {wrong.sum()} had wrong labels" in shown.err
    low, _, high = (round(110 * part) for part in share(int(wrong.sum()), 40))
    assert f"of 110 labels are wrong; with 90% confidence between {low} and {high}." in shown.out
    # Rows that were looked at because they were suspicious stand for nothing but themselves.
    clean.write(decisions=decisions.assign(picked="as suspicious"))
    shown = clean("train.csv", "--trusted", "decisions.csv", "--force")
    assert "or none." in shown.out


def test_rows_without_a_label_are_told_what_is_likely(clean: Command) -> None:
    case, right = dirty(), table(150, seed=1).label
    train = case.train.copy()
    train.loc[:9, "label"] = [None] * 7 + ["NULL", "n.a.", "-"]
    train.loc[10:12, "label"] += " "
    clean.write(train=train)
    shown = clean("train.csv")
    assert shown.code == 0, shown.err
    assert "10 rows have no label (['-', 'NULL', 'n.a.'] is taken for none)" in shown.err
    assert "differ only in blanks or case are one" in " ".join(shown.err.split())
    assert "of 140 labels are wrong; it may be up to" in shown.out
    found = pd.read_csv(clean.folder / "cleaned" / "labels.csv")
    assert found.suspicion[:10].isna().all()
    assert not found.flagged[:10].any()
    assert (found.likely_label[:10] == right[:10]).mean() > 0.7
    assert found.label[10] == train.label[10]  # as it was written
    assert set(found.likely_label) == {"ant", "bee", "cat"}


def test_trusted_rows_that_are_rows_of_the_table_are_these(clean: Command) -> None:
    case, right = dirty(), table(150, seed=1).label
    train = case.train.assign(key=np.random.default_rng(0).permutation(150))
    rows = np.r_[np.flatnonzero(case.wrong)[:10], np.flatnonzero(~case.wrong)[:20]]
    clean.write(train=train, checked=train.iloc[rows].assign(label=right[rows]))
    shown = clean("train.csv", "--trusted", "checked.csv")
    assert shown.code == 0, shown.err
    assert "30 trusted rows are rows of your table; 10 of them have another label there" in (
        " ".join(shown.err.split())
    )
    assert "column 'key' is left out (numbers the rows: an id)" in shown.err
    assert "of 120 labels" in shown.out
    found = clean.labels("train.csv", "--trusted", "checked.csv", "--force")
    assert len(found) == 150
    assert found.flagged[rows].tolist() == [True] * 10 + [False] * 20
    assert found.suspicion[rows].tolist() == [1] * 10 + [0] * 20
    assert (found.likely_label[rows] == right[rows]).all()


def test_rows_that_are_equal_by_chance_are_not_taken_for_checked_ones(clean: Command) -> None:
    case = dirty()
    checked = pd.concat([case.trusted[:20], case.train[:20].assign(label="bee")])
    clean.write(train=case.train, checked=checked)
    shown = clean("train.csv", "--trusted", "checked.csv")
    assert "of 150 labels" in shown.out
    assert "rows of your table" not in shown.err


@pytest.mark.parametrize("low", [0.0, 30.0])
@pytest.mark.parametrize("precise", [None, (0.2, 0.5, 0.7), (0.6, 0.9, 1.0)])
def test_the_number_of_wrong_labels_and_the_flags_do_not_contradict_each_other(
    low: float, precise: tuple[float, float, float] | None
) -> None:
    count, share_ = agreeing((low, 40.0, 50.0), 100, precise)
    assert low <= count[0] <= count[1] <= count[2]
    if share_ is None:
        assert count[2] == 100
    else:
        assert (share_[0] == 0) == (count[0] == 0)
        assert count[0] >= (60 if precise == (0.6, 0.9, 1.0) else 0)
