"""Judges: what must hold of any runs, however they went."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bilevel.lab.curves import Curve
from bilevel.lab.experiments.judges import (
    COSTS,
    Ahead,
    Alike,
    EndsAbove,
    Fastest,
    GainFalls,
    SlowAndNoisy,
    Steadier,
)
from bilevel.lab.experiments.rule import ERROR, Verdict, decide
from bilevel.lab.experiments.verdicts import Evidence, Judge
from bilevel.lab.quantities import SAMPLES

METRIC = "test_accuracy"
SEEDS = range(5)
END = 8.0
Judged = Callable[[str, str], Judge]
FASTEST = [
    pytest.param(lambda a, b, cost=cost: Fastest(a, (METRIC,), cost, (b,)), id=f"fastest in {cost}")
    for cost in COSTS
]
AHEAD = [
    pytest.param(
        lambda a, b, cost=cost: Ahead((a,), b, (METRIC,), cost=cost), id=f"ahead in {cost}"
    )
    for cost in COSTS
]
LATER = [  # what happened before the first outer step is nothing to them
    *AHEAD,
    pytest.param(lambda a, b: EndsAbove((a,), (b,), METRIC), id="ends above"),
    pytest.param(lambda a, b: Steadier(b, a, METRIC), id="steadier"),
]
SLOW = pytest.param(lambda a, b: SlowAndNoisy(b, a, METRIC), id="slow and noisy")
finite = st.floats(0.1, 3.0)


@st.composite
def runs(draw: st.DrawFn, values: st.SearchStrategy[float] = finite) -> Curve:
    """One to six measurements after the start, at any times."""
    pauses = draw(st.lists(st.floats(0.01, END / 6), min_size=1, max_size=6))
    steps = np.arange(len(pauses) + 1.0)
    start, after = draw(finite), draw(st.lists(values, min_size=len(pauses), max_size=len(pauses)))
    columns = {"step": steps, "seconds": np.cumsum([0.0, *pauses]), METRIC: [start, *after]}
    columns |= {name: steps * draw(st.integers(1, 9)) for name in SAMPLES}
    return Curve("", 0, {name: np.array(column, float) for name, column in columns.items()})


def evidences(values: st.SearchStrategy[float] = finite) -> st.SearchStrategy[Evidence]:
    seeds = st.lists(runs(values), min_size=len(SEEDS), max_size=len(SEEDS))
    return st.builds(
        lambda a, b: Evidence({"a": _numbered(a), "b": _numbered(b)}, END), seeds, seeds
    )


def _numbered(curves: list[Curve]) -> list[Curve]:
    return [replace(curve, seed=seed) for seed, curve in zip(SEEDS, curves, strict=True)]


def gains(judge: Judge, evidence: Evidence) -> list[float]:
    return [value for gain in judge(evidence).gains for value in gain.values]


def changed(evidence: Evidence, change: Callable[[Curve], Curve], end: float = END) -> Evidence:
    curves = {label: [*map(change, seeds)] for label, seeds in evidence.curves.items()}
    return Evidence(curves, end)


@pytest.mark.parametrize("judge", [*FASTEST, *LATER, SLOW])
@given(evidences(finite | st.just(math.nan)))
@settings(max_examples=30, deadline=None)
def test_who_is_asked_for_turns_the_sign_and_nothing_else(judge: Judged, runs: Evidence) -> None:
    opposite = [-gain for gain in gains(judge("a", "b"), runs)]
    assert gains(judge("b", "a"), runs) == pytest.approx(opposite, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("judge", [*FASTEST, *LATER, SLOW])
@given(evidences(finite | st.just(math.nan)))
@settings(max_examples=30, deadline=None)
def test_the_units_of_a_cost_do_not_matter(judge: Judged, runs: Evidence) -> None:
    def dearer(curve: Curve) -> Curve:
        priced = {name: 4 * curve.columns[name] for name in ("seconds", *SAMPLES)}
        return replace(curve, columns=curve.columns | priced)

    assert gains(judge("a", "b"), changed(runs, dearer, 4 * END)) == gains(judge("a", "b"), runs)


@pytest.mark.parametrize("judge", LATER)
@given(evidences(), finite)
@settings(max_examples=30, deadline=None)
def test_what_was_measured_before_the_first_step_does_not_matter(
    judge: Judged, runs: Evidence, start: float
) -> None:
    def begun(curve: Curve) -> Curve:
        values = curve.columns[METRIC].copy()
        values[0] = start
        return replace(curve, columns=curve.columns | {METRIC: values})

    assert gains(judge("a", "b"), changed(runs, begun)) == gains(judge("a", "b"), runs)


@given(evidences())
@settings(max_examples=30, deadline=None)
def test_leads_that_are_shares_of_a_fall_are_opposite_and_none_where_no_run_fell(
    runs: Evidence,
) -> None:
    one, other = Alike(("a", "b"), METRIC)(runs).gains
    for seed in SEEDS:
        curves = [curves[seed].columns[METRIC] for curves in runs.curves.values()]
        fell = min(values[1:].min() for values in curves) < max(values[0] for values in curves)
        twice = one.values[seed] + other.values[seed]
        assert twice == pytest.approx(0.1, abs=1e-9) if fell else math.isnan(twice)


def test_where_every_run_rises_nothing_is_decided() -> None:
    def rising(to: float) -> list[Curve]:
        columns = {"step": [0.0, 1.0], "seconds": [0.0, 1.0], METRIC: [1.0, to]}
        line = {name: np.array(values) for name, values in columns.items()}
        return [Curve("", seed, line) for seed in SEEDS]

    both = dict.fromkeys(("first", "then"), Evidence({"a": rising(2.0), "b": rising(9.0)}, END))
    falls = GainFalls("a", ("b",), METRIC, ("first", "then"))(both)
    alike = Alike(("a", "b"), METRIC)(both["first"])
    for finding in (falls, alike):
        assert decide(finding.gains, ERROR) is Verdict.UNDECIDED
