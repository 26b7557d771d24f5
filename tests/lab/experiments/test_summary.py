"""The table that `bilevel run` prints."""

from __future__ import annotations

import math

import numpy as np

from bilevel.lab.curves import Curve
from bilevel.lab.experiments.summary import summary


def seed(*losses: float) -> Curve:
    """A run that measured these validation losses, one per step."""
    columns = {"step": range(len(losses)), "validation_loss": losses}
    return Curve("a", 0, {name: np.array(values, float) for name, values in columns.items()})


def test_the_summary_has_means_and_spreads_over_seeds() -> None:
    assert summary({"a": [seed(2.0, 1.0), seed(2.0, 1.2)]}).splitlines()[1].split() == [
        *("a", "1", "1.10", "±", "0.14"),
    ]


def test_a_run_that_diverged_is_not_shown_by_its_last_finite_loss() -> None:
    assert "not finite in 1 of 2 seeds" in summary({"a": [seed(2.0, math.nan), seed(2.0, 1.0)]})
    assert "not finite in 1 of 1 seeds" in summary({"a": [seed(2.0, math.inf)]})
