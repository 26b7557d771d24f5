"""What columns are taken for, and what becomes of them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bilevel.apps.cleaning.columns import Column, Kind, dates_of, leaks, recognise
from bilevel.apps.cleaning.counting import how_many, how_right, most_expected_f1
from bilevel.apps.cleaning.features import Encoder
from bilevel.errors import UserError

from .dirty_tables import Command, dirty

N = 40
COLOURS = ["red", "blue", "green", "grey", "white"]
THINGS = ["box", "cup", "pen", "bag", "hat", "lamp", "desk", "mat"]
WORDS = [
    "late delivery of the parcel",
    "the box was broken",
    "wrong size and colour",
    "all is well",
]
CASES: list[tuple[list[Any], Kind]] = [
    (list(np.linspace(0, 1, N)), Kind.NUMBER),
    ([1, 2] * 20, Kind.NUMBER),
    ([True, False] * 20, Kind.NUMBER),
    ([1.5, None] * 20, Kind.NUMBER),
    ([np.inf, 1.0, 2.0, 1e200] * 10, Kind.NUMBER),
    ([*(f"{i / 7:.3f}" for i in range(N - 2)), "n/a", "?"], Kind.NUMBER),
    (["red", "blue"] * 20, Kind.CATEGORY),
    ([None, "rare"] + [None] * 38, Kind.CATEGORY),
    ([f"2024-0{1 + i % 9}-{10 + i % 18}" for i in range(N)], Kind.DATE),
    ([f"{1 + i % 28}.{1 + i % 12}.2024 10:30" for i in range(N)], Kind.DATE),
    (list(pd.date_range("2024-01-01", periods=N)), Kind.DATE),
    ([f"{WORDS[i % 4]} {i}" for i in range(N)], Kind.TEXT),
    ([f"{COLOURS[i % 5]} {THINGS[i % 8]}" for i in range(N)], Kind.TEXT),
    ([f"K-{i * 977 % 1000:05}" for i in range(N)], Kind.IGNORED),
    (list(range(7, 7 + N)), Kind.IGNORED),
    (["x"] * N, Kind.IGNORED),
    ([3.5] * N, Kind.IGNORED),
    ([None] * N, Kind.IGNORED),
]


@pytest.mark.parametrize(("values", "kind"), CASES)
def test_a_column_is_taken_for_what_it_is(values: list[Any], kind: Kind) -> None:
    [column] = recognise(pd.DataFrame({"x": values}))
    assert column.kind is kind, column


def test_a_number_named_as_a_key_is_left_out_and_another_is_not() -> None:
    values = np.arange(N) ** 2
    found = recognise(pd.DataFrame({"order_id": values, "PassengerId": values, "paid": values}))
    assert [column.kind for column in found] == [Kind.IGNORED, Kind.IGNORED, Kind.NUMBER]


def test_the_users_word_goes_first() -> None:
    frame = pd.DataFrame({"a": range(N), "b": ["x", "y"] * 20, "c": [1, 2] * 20})
    found = recognise(frame, text=["b"], category=["c"], ignore=["a"])
    assert [column.kind for column in found] == [Kind.IGNORED, Kind.TEXT, Kind.CATEGORY]


def test_day_and_month_are_told_apart_by_the_column() -> None:
    learned = pd.DataFrame({"day": ["03/04/2024", "13/04/2024", "01/02/2024"]})
    encoder = Encoder.fit(learned, recognise(learned))
    # Few rows alone cannot tell, but the others could.
    assert np.array_equal(encoder.transform(learned[:1]).tree, encoder.transform(learned).tree[:1])
    json.dumps(encoder.numbers.days_first)  # as a model's file has them
    assert dates_of(pd.Series(["03/04/2024", "13/04/2024"])).dt.month.tolist() == [4, 4]
    assert dates_of(pd.Series(["03/04/2024", "04/13/2024"])).dt.month.tolist() == [3, 4]
    assert dates_of(pd.Series(["03.04.2024", "05.06.2024"])).dt.month.tolist() == [4, 6]


@pytest.mark.filterwarnings("error")
def test_every_kind_together_gives_finite_features_of_known_and_new_rows() -> None:
    frame = pd.DataFrame({str(i): values for i, (values, _) in enumerate(CASES)})
    encoder = Encoder.fit(frame, recognise(frame))
    strange = frame.astype(object).where(frame.notna() & False, None)
    for view in (*encoder.transform(frame), *encoder.transform(strange)):
        assert np.isfinite(view).all()
        assert len(view) == N


def test_units_and_order_of_rows_do_not_matter_to_ranks() -> None:
    values = np.random.default_rng(0).normal(size=N)
    kinds = [Column("x", Kind.NUMBER)]
    plain, scaled = (pd.DataFrame({"x": v}) for v in (values, 1e6 * values + 5))
    views = [Encoder.fit(f, kinds).transform(f) for f in (plain, scaled)]
    assert np.allclose(views[0].linear, views[1].linear)
    turned = plain[::-1].reset_index(drop=True)
    assert np.allclose(Encoder.fit(turned, kinds).transform(plain).linear, views[0].linear)


def test_wide_tables_are_taken_to_few_directions() -> None:
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 1200)))
    views = Encoder.fit(frame, recognise(frame)).transform(frame)
    assert [view.shape[1] for view in views] == [29, 29, 1200]


def test_a_table_of_which_nothing_can_be_learned_is_refused_with_the_reason() -> None:
    frame = pd.DataFrame({"row": np.arange(50), "made": ["here"] * 50})
    with pytest.raises(UserError, match=r"no column to learn from\. 'row' is left out: .*'made'"):
        Encoder.learn(frame, recognise(frame))


def test_a_column_made_from_the_label_is_told_and_a_good_one_is_not() -> None:
    random = np.random.default_rng(0)
    labels = np.array(["a", "b"])[random.integers(2, size=200)]
    frame = pd.DataFrame({"code": labels, "good": (labels == "a") + 0.5 * random.normal(size=200)})
    [told] = leaks(frame, recognise(frame), labels)
    assert told.startswith("column 'code' alone determines nearly every label")
    assert leaks(frame[:6], recognise(frame), labels[:6]) == []  # six rows: by chance


# Counting


def test_flags_have_the_greatest_expected_f1_of_all_sets() -> None:
    p = np.random.default_rng(0).random(12) ** 2
    flags = most_expected_f1(p)

    def expected(which: Any) -> float:
        return float(2 * p[which].sum() / (which.sum() + p.sum()))

    tops = [p >= value for value in np.sort(p)]
    assert expected(flags) == max(expected(top) for top in tops)
    assert not most_expected_f1(np.zeros(5)).any()


def test_the_interval_of_the_count_covers_the_truth_with_trusted_rows() -> None:
    inside = 0
    for seed in range(200):
        random = np.random.default_rng(seed)
        right = random.integers(3, size=1100)
        guess = np.where(
            random.random(1100) < 0.85, right, (right + random.integers(1, 3, 1100)) % 3
        )
        wrong = random.random(1000) < 0.2
        given = np.where(wrong, (right[:1000] + random.integers(1, 3, 1000)) % 3, right[:1000])
        low, _, high = how_many(wrong * 0.9, given, guess[:1000], guess[1000:], right[1000:])
        inside += low <= wrong.sum() <= high
    assert inside / 200 >= 0.9


def test_few_trusted_rows_say_nothing_about_accuracy() -> None:
    assert how_right(np.ones(19)) is None
    rows, hits, low, high = how_right(np.ones(20)) or (0, 0, 0.0, 0.0)
    assert (rows, hits) == (20, 20)
    assert 0.85 < low < 0.9 < 0.999 < high <= 1


def test_the_ids_of_trusted_rows_do_not_hide_an_id(clean: Command) -> None:
    case = dirty()
    keys = np.random.default_rng(0).permutation
    clean.write(train=case.train.assign(key=keys(150)), trusted=case.trusted.assign(key=keys(60)))
    shown = clean("train.csv", "--trusted", "trusted.csv", "--explain-columns")
    assert "key     ignored   numbers the rows: an id" in shown.out


def test_dates_that_mean_never_are_read() -> None:
    days = ["9999-12-31", "2024-01-02", "1500-06-01", "2024-01-03", "2024-01-02 12:00", None]
    table = pd.DataFrame({"until": days})
    view = Encoder.fit(table, recognise(table)).transform(table).tree
    assert view[1, 0] == 19724
    assert view[4, 0] == 19724.5
    assert np.isfinite(view).all()
