"""The rules that end a run, on histories made by hand."""

from __future__ import annotations

from bilevel.oracles import Counts
from bilevel.runs.history import HistoryRecord
from bilevel.runs.limits import Limits, divergence


def records(norms: list[float], values: list[float | None]) -> list[HistoryRecord]:
    return [
        HistoryRecord(k, 0.0, value, norm, {}, Counts(), {})
        for k, (norm, value) in enumerate(zip(norms, values, strict=True), start=1)
    ]


def test_a_gradient_that_grows_is_divergence_only_where_f_has_not_fallen() -> None:
    norms, unknown = [1.0] * 12 + [1e7], [None] * 12
    assert "1e+07" in divergence(records(norms, [3.0, *unknown[:-1], 4.0]))
    assert "1e+07" in divergence(records(norms, [*unknown, None]))  # nothing speaks against it
    assert divergence(records(norms, [3.0, *unknown[:-1], 2.0])) == ""
    assert divergence(records([1.0] * 12 + [1e5], [*unknown, None])) == ""


def test_of_small_estimates_the_first_second_fourth_and_eighth_are_looked_at() -> None:
    limits = Limits(steps=100, tol=0.1, seconds=None)
    history = records([1.0, 0.05, 1.0, *[0.05] * 12], [None] * 15)
    looks = [k for k in range(1, 16) if limits.is_worth_a_look(history[:k])]
    small = [sum(record.hypergradient_norm <= 0.1 for record in history[:k]) for k in looks]
    assert small == [1, 2, 4, 8]
    assert history[looks[1] - 1].hypergradient_norm <= 0.1  # not at the large one after the first
