"""`bilevel clean`: what it takes in, and what it finds."""

from __future__ import annotations

import re
from dataclasses import fields

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

import bilevel
from bilevel.algorithms import registry

from .dirty_tables import NAMES, Command, dirty, table, with_gaps

TRUSTED = ("--trusted", "trusted.csv")


# Input


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
def test_every_kind_of_file_gives_a_table_with_a_row_a_row(clean: Command, kind: str) -> None:
    case = dirty()
    for name, frame in (("train", case.train), ("trusted", case.trusted)):
        file = clean.folder / f"{name}.{kind}"
        if kind == "csv":
            frame.to_csv(file, index=False)
        elif kind == "parquet":
            frame.set_axis([f"row {i}" for i in frame.index]).to_parquet(file)
        else:
            X = frame[["width", "height"]].to_numpy()
            np.savez(file, X=X, colour=frame.colour.to_numpy("U"), label=frame.label.to_numpy("S"))
    found = clean.labels(f"train.{kind}", "--trusted", f"trusted.{kind}")
    assert list(found) == ["row", "label", "likely_label", "suspicion", "weight", "flagged"]
    assert found.row.tolist() == list(range(1, 151))
    assert found.label.tolist() == case.train.label.tolist()
    assert set(found.likely_label) == set(NAMES)
    assert found[["suspicion", "weight"]].to_numpy().min() >= 0
    assert found[["suspicion", "weight"]].to_numpy().max() <= 1
    assert roc_auc_score(case.wrong, found.suspicion) > 0.95
    assert found.flagged.dtype == bool
    assert found.flagged[case.wrong].mean() > 0.8
    assert found.flagged[~case.wrong].mean() < 0.15


def test_missing_values_are_no_hindrance(clean: Command) -> None:
    case = dirty()
    clean.write(train=with_gaps(case.train, 0), trusted=with_gaps(case.trusted, 1))
    found = clean.labels("train.csv", *TRUSTED)
    assert roc_auc_score(case.wrong, found.suspicion) > 0.9


def test_categories_alone_are_enough_to_learn_from(clean: Command) -> None:
    case = dirty()
    right = table(150, seed=1).label
    codes = {"ant": 7, "bee": 1, "cat": 30}
    clean.write(
        train=pd.DataFrame({"code": right.map(codes), "sure": True, "label": case.train.label}),
        trusted=pd.DataFrame(  # a gap makes floats of these codes
            {"code": [*case.trusted.label.map(codes)[:-1], None], "sure": True}
        ).assign(label=case.trusted.label),
    )
    found = clean.labels("train.csv", *TRUSTED, "--categorical", "code")
    assert (found.flagged == case.wrong).all()
    assert (found.likely_label == right).all()
    features = np.load(clean.folder / "cleaned" / "model.npz")["features"].tolist()
    assert features == ["sure", "code_(missing)", "code_1", "code_30", "code_7"]


def test_dates_and_categories_of_a_parquet_file_are_categories(clean: Command) -> None:
    case = dirty()
    for name, frame in (("train", case.train), ("trusted", case.trusted)):
        days = pd.Series(pd.to_datetime(["2024-01-01", "2024-01-02"] * 75)[: len(frame)])
        code = pd.Series(["07", "30"] * 75, dtype="category")[: len(frame)]
        frame = frame.assign(code=code, day=days.mask(frame.index == 3))
        frame.to_parquet(clean.folder / f"{name}.parquet")
    clean.labels("train.parquet", "--trusted", "trusted.parquet")
    features = np.load(clean.folder / "cleaned" / "model.npz")["features"].tolist()
    assert features[-5:-3] == ["code_07", "code_30"]
    assert features[-3:] == ["day_(missing)", "day_2024-01-01", "day_2024-01-02"]


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


def test_a_dropped_column_may_be_in_one_file_only(clean: Command) -> None:
    case = dirty()
    clean.write(train=case.train.assign(id=range(150)), trusted=case.trusted)
    assert clean("train.csv", *TRUSTED, "--drop", "id").code == 0


# Trusted rows of the same file


@pytest.mark.parametrize("marks", [(True, False), (1, 0), ("yes", "no"), (1.0, None)])
def test_marked_rows_are_trusted_and_the_others_keep_their_numbers(
    clean: Command, marks: tuple[object, object]
) -> None:
    case = dirty()
    whole = pd.concat([case.train, case.trusted], ignore_index=True)
    whole["ok"] = [marks[1]] * 150 + [marks[0]] * 60
    shuffled = whole.sample(frac=1, random_state=0)
    clean.write(train=shuffled)
    found = clean.labels("train.csv", "--trusted-column", "ok")
    doubtful = shuffled.index < 150
    assert found.row.tolist() == (np.flatnonzero(doubtful) + 1).tolist()
    assert found.label.tolist() == shuffled.label[doubtful].tolist()
    assert roc_auc_score(case.wrong[shuffled.index[doubtful]], found.suspicion) > 0.95
    # The report shows the values of the row that it numbers.
    row = r'<tr>\s*<td class="number" data-order="(\d+)">(.*?)</tr>'
    shown = re.findall(row, clean.report(), re.DOTALL)
    assert len(shown) == min(30, found.flagged.sum())
    for number, cells in shown:
        assert f">{shuffled.width.iloc[int(number) - 1]:.4g}</td>" in cells


def test_a_fraction_of_the_marked_rows_is_taken_from_each_class(clean: Command) -> None:
    case = dirty()
    whole = pd.concat([case.train.assign(ok=False), case.trusted.assign(ok=True)])
    clean.write(train=whole)
    options = ("--trusted-column", "ok", "--trusted-fraction", "0.26")
    found = clean.labels("train.csv", *options)
    assert len(found) == 150 + 60 - 3 * 6  # of the 20 rows of each class, 5.2 rounded up
    assert found[found.row > 150].label.value_counts().tolist() == [14, 14, 14]
    again = clean.labels("train.csv", *options, "--force", "--seed", "1")
    assert again.row.tolist() != found.row.tolist()


# How well it finds them


@pytest.mark.parametrize("name", registry())
def test_every_algorithm_ranks_wrong_labels_better_than_chance(clean: Command, name: str) -> None:
    case = dirty()
    clean.write(train=case.train, trusted=case.trusted)
    found = clean.labels("train.csv", *TRUSTED, "--algorithm", name, "--steps", "5")
    assert roc_auc_score(case.wrong, found.suspicion) > 0.95
    samples = "batch" in {field.name for field in fields(registry()[name].algorithm)}
    # The weights are the bilevel problem's own answer; a sampled one has hardly begun.
    assert roc_auc_score(case.wrong, -found.weight) > (0.5 if samples else 0.8)


def test_wrong_labels_of_digits_are_found(clean: Command) -> None:
    X, y = bilevel.datasets.load("digits").train
    labels, _, wrong = bilevel.datasets.corrupt(y[300:], 0.3, classes=10, seed=0)
    np.savez(clean.folder / "train.npz", X=X[300:], digit=labels)
    np.savez(clean.folder / "trusted.npz", X=X[:300], digit=y[:300])
    found = clean.labels("train.npz", "--trusted", "trusted.npz", "--label", "digit")
    assert roc_auc_score(wrong, found.suspicion) > 0.98
    assert found.flagged[wrong].mean() > 0.9
    assert found.flagged[~wrong].mean() < 0.05
    assert (found.likely_label == y[300:].astype(str)).mean() > 0.93
