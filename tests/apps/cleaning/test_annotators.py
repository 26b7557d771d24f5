"""Several people's labels: each is weighed by how good it is, and the rows help to tell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from bilevel.apps.cleaning.annotators import abilities, agreed
from bilevel.apps.cleaning.engine import find_wrong_labels

from .dirty_tables import Command

GOOD = (0.9, 0.7, 0.45)
Array = np.ndarray[Any, Any]


def crowd(rows: int = 240, missing: float = 0.2) -> tuple[pd.DataFrame, Array, Array]:
    """Rows of three classes, what is true, and the votes of people of known quality."""
    random = np.random.default_rng(0)
    right = np.arange(rows) % 3
    table = pd.DataFrame(np.eye(3)[right] + 0.9 * random.normal(size=(rows, 3)), columns=[*"uvw"])
    others = (right + random.integers(1, 3, (3, rows))) % 3
    votes = np.where(random.random((3, rows)) < np.array(GOOD)[:, None], right, others).T
    votes[random.random((rows, 3)) < missing] = -1
    return table, right, votes


def test_the_quality_of_each_is_found_from_their_votes_alone() -> None:
    _, right, votes = crowd(3000)
    beliefs = agreed(votes, 3)
    found = np.diagonal(abilities(votes, beliefs), axis1=1, axis2=2).mean(1)
    assert np.abs(found - GOOD).max() < 0.04
    majority = np.stack([(votes == k).sum(1) for k in range(3)], 1).argmax(1)
    assert (beliefs.argmax(1) == right).mean() > (majority == right).mean() + 0.02


def test_with_votes_a_label_is_judged_better_than_by_the_rows_alone() -> None:
    table, right, votes = crowd()
    names = np.where(votes >= 0, votes, None).astype(object)
    given = np.where(votes[:, 2] >= 0, votes[:, 2], 0)
    wrong = given != right
    alone = find_wrong_labels(table, given)
    found = find_wrong_labels(table, given, annotators=names)
    assert found.annotators is not None
    real = [(votes[:, j] == right)[votes[:, j] >= 0].mean() for j in range(3)]
    assert np.abs(found.annotators - real).max() < 0.1
    assert roc_auc_score(wrong, found.wrong) > 0.93 > roc_auc_score(wrong, alone.wrong)
    # Better than by the votes alone, since the rows speak, too.
    assert (found.likely == right).mean() > (agreed(votes, 3).argmax(1) == right).mean()
    assert not found.blind


def test_the_command_takes_columns_of_votes_and_says_how_good_each_is(clean: Command) -> None:
    table, right, votes = crowd(150)
    words = pd.DataFrame(np.array(["ant", "bee", "cat", ""])[votes], columns=["ada", "bob", "cy"])
    clean.write(train=table.join(words))
    shown = clean("train.csv", "--annotators", "cy,bob", "--annotators", "ada", "--label", "")
    assert shown.code == 0, shown.err
    assert "Right in about: cy " in shown.out
    found = pd.read_csv(clean.folder / "cleaned" / "labels.csv")
    truth = np.array(["ant", "bee", "cat"])[right]
    assert (found.likely_label == truth).mean() > (found.majority_label == truth).mean()
    again = clean("train.csv", "--annotators", "ada,eve", "--label", "", "--force")
    assert again.code == 2
    assert "no column 'eve'" in again.err


def test_who_labelled_nothing_is_not_called_right(clean: Command) -> None:
    table, _, votes = crowd(60)
    people = {name: votes[:, j] for j, name in enumerate(["ada", "bob"])}
    clean.write(crowd=table.assign(**people, eve=None))
    shown = clean("crowd.csv", "--annotators", "ada,bob,eve", "--label", "ada")
    assert shown.code == 2
    assert "no label in any row of column 'eve': leave it out of --annotators" in shown.err


def test_two_who_never_differ_are_told(clean: Command) -> None:
    table, _, votes = crowd(60, missing=0)
    people = {name: votes[:, j] for name, j in (("ada", 0), ("bob", 1), ("eve", 1))}
    clean.write(crowd=table.assign(**people))
    shown = clean("crowd.csv", "--annotators", "ada,bob,eve", "--label", "")
    told = " ".join(shown.err.split())
    assert "'bob' and 'eve' gave the same label in all 60 rows that both labelled" in told
    assert "'ada' and" not in told
