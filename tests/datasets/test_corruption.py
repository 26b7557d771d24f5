"""Wrong labels on purpose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bilevel.datasets import corrupt


def test_corruption_replaces_at_the_rate_and_counts_as_wrong_only_what_changed() -> None:
    old = np.random.default_rng(0).integers(10, size=50_000)
    kept = old.copy()
    labels, replaced, wrong = corrupt(old, 0.4, 10, seed=3)
    np.testing.assert_array_equal(old, kept)
    np.testing.assert_array_equal(wrong, labels != old)
    assert not (wrong & ~replaced).any()
    # five standard deviations of a binomial of 50,000 draws
    assert abs(replaced.mean() - 0.4) < 5 * np.sqrt(0.4 * 0.6 / 50_000)
    assert abs(wrong.mean() - 0.36) < 5 * np.sqrt(0.36 * 0.64 / 50_000)
    drawn = np.bincount(labels[replaced], minlength=10) / replaced.sum()
    assert abs(drawn - 0.1).max() < 5 * np.sqrt(0.1 * 0.9 / replaced.sum())
    np.testing.assert_array_equal(corrupt(old, 0.4, 10, seed=3).labels, labels)
    assert (corrupt(old, 0.4, 10, seed=4).labels != labels).any()
    assert not (corrupt(old, 0.1, 10, seed=3).replaced & ~replaced).any()
    assert not corrupt(old, 0, 10, seed=3).replaced.any()
    assert corrupt(old, 1, 10, seed=3).replaced.all()


@pytest.mark.parametrize(
    ("labels", "fraction", "classes", "seed", "says"),
    [
        ([0, 1], 1.5, 2, 0, "1.5"),
        ([0, 1], float("nan"), 2, 0, "nan"),
        ([0, 2], 0.5, 2, 0, "0 to 2"),
        ([-1, 1], 0.5, 2, 0, "-1 to 1"),
        ([0.0, 1.0], 0.5, 2, 0, "float64"),
        ([[0, 1]], 0.5, 2, 0, r"\(1, 2\)"),
        ([0, 0], 0.5, 0, 0, "classes"),
        ([0, 1], 0.5, 2, -1, "seed"),
    ],
)
def test_corruption_refuses_bad_arguments_and_quotes_them(
    labels: Any, fraction: float, classes: int, seed: int, says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        corrupt(labels, fraction, classes, seed)
