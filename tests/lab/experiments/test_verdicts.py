"""Verdicts: synthetic histories whose outcome is plain to see."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bilevel.lab.curves import (
    Curve,
    Sample,
    mean_over_time,
    time_to,
    times_to_fraction,
    value_at,
)
from bilevel.lab.experiments.judges import (
    Ahead,
    Alike,
    EachBeats,
    EndsAbove,
    Fastest,
    GainFalls,
    MostAccurate,
    SlowAndNoisy,
    Steadier,
)
from bilevel.lab.experiments.verdicts import (
    Evidence,
    Figure,
    Finding,
    Verdict,
    to_json,
    to_markdown,
)
from bilevel.lab.figures import figure_names, find_figure

SEEDS = range(3)
END = 10.0
History = list[dict[str, Any]]


def falling(rate: float, floor: float = 0.5, noise: float = 0.0) -> Callable[[int], History]:
    """A loss that falls from 2.5 to a floor; the noise moves the floor with the seed."""

    def run(seed: int) -> History:
        lines = []
        for i in range(101):
            time = END * i / 100
            settled = floor + noise * (seed - 1)
            loss = settled + (2.5 - settled) * math.exp(-rate * time)
            line = {"step": i, "seconds": time, "test_accuracy": 1 - loss / 3}
            line["train_accuracy"] = line["test_accuracy"]
            lines.append({**line, "test_loss": loss, "train_loss": loss, "validation_loss": loss})
        return lines

    return run


def curve(label: str, seed: int, history: History) -> Curve:
    """As it would be read from a folder: what was not finite is null there, and then NaN."""
    columns = {name: np.array([line[name] for line in history], float) for name in history[0]}
    return Curve(label, seed, columns)


def evidence(**runs: Callable[[int], History]) -> Evidence:
    curves = {label: [curve(label, s, run(s)) for s in SEEDS] for label, run in runs.items()}
    return Evidence(curves, END)


def test_readings_hold_the_last_value() -> None:
    lines = [{"seconds": t, "loss": v} for t, v in ((0.0, 3.0), (2.0, 1.0), (5.0, None))]
    history = curve("a", 0, lines)
    assert value_at(history, "loss", 1.99) == 3.0
    assert value_at(history, "loss", 2.0) == 1.0
    assert value_at(history, "loss", 9.0) == math.inf
    assert time_to(history, "loss", 1.0) == 2.0
    assert time_to(history, "loss", 0.5) == math.inf
    assert mean_over_time(history, "loss", 4.0) == pytest.approx(2.0)


def test_levels_are_shares_of_the_fall_that_the_best_run_made() -> None:
    runs = evidence(quick=falling(5.0), slow=falling(0.5))
    times = times_to_fraction(runs.curves, "test_loss", 0.9)
    assert times["quick"].mean == pytest.approx(math.log(10) / 5, abs=0.11)
    assert times["slow"].mean == pytest.approx(math.log(10) / 0.5, abs=0.11)


def test_a_difference_counts_when_it_exceeds_its_spread() -> None:
    low, high, mixed = Sample((1.0, 1.2)), Sample((2.0, 2.1)), Sample((0.5, 2.5))
    assert (low.is_below(high), high.is_below(low), low.is_below(mixed)) == (1, -1, 0)
    never = Sample((math.inf, math.inf))
    assert (low.is_below(never), never.is_below(low), never.is_below(never)) == (1, -1, 0)
    assert low.is_below(Sample((math.inf, 1.0))) == 0
    assert str(never) == "never"
    assert str(Sample((2.0, math.inf))) == "2 ± 0 (in 1 of 2 seeds never)"


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        (falling(3.0), Verdict.CONFIRMED),
        (falling(0.3), Verdict.CONTRADICTED),
        (falling(3.0, floor=0.6), Verdict.PARTLY),  # first to 90 %, never at 99 %
        (falling(1.0), Verdict.PARTLY),  # neither ahead nor behind
    ],
)
def test_fastest_is_first_at_both_levels(ours: Callable[[int], History], verdict: Verdict) -> None:
    runs = evidence(ours=ours, rival=falling(1.0), other=falling(0.5))
    finding = Fastest("ours", ("test_loss",))(runs)
    assert finding.verdict == verdict
    assert "seconds to 90% of the fall of the test loss: ours" in finding.numbers


@pytest.mark.parametrize(
    ("floor", "noise", "verdict"),
    [
        (0.3, 0.0, Verdict.CONFIRMED),
        (0.8, 0.0, Verdict.CONTRADICTED),
        (0.49, 0.1, Verdict.PARTLY),  # ahead by less than the spread
    ],
)
def test_most_accurate_needs_a_clear_lead(floor: float, noise: float, verdict: Verdict) -> None:
    runs = evidence(ours=falling(3.0, floor, noise), rival=falling(3.0, 0.5))
    finding = MostAccurate("ours")(runs)
    assert finding.verdict == verdict
    assert "test accuracy after 10 s: ours 0." in finding.numbers


@pytest.mark.parametrize(
    ("rates", "verdict"),
    [
        ((2.0, 3.0), Verdict.CONFIRMED),
        ((2.0, 0.5), Verdict.PARTLY),
        ((1.0, 1.0), Verdict.PARTLY),
        ((0.4, 0.5), Verdict.CONTRADICTED),
    ],
)
def test_each_must_beat_the_rival(rates: tuple[float, float], verdict: Verdict) -> None:
    runs = evidence(a=falling(rates[0]), b=falling(rates[1]), hoag=falling(1.0))
    assert EachBeats(("a", "b"), "hoag", "test_loss")(runs).verdict == verdict


@pytest.mark.parametrize(
    ("floor", "verdict"),
    [(0.52, Verdict.CONFIRMED), (0.7, Verdict.PARTLY), (1.5, Verdict.CONTRADICTED)],
)
def test_alike_measures_differences_by_the_fall(floor: float, verdict: Verdict) -> None:
    runs = evidence(a=falling(3.0), b=falling(3.0, floor))
    assert Alike(("a", "b"), "test_loss")(runs).verdict == verdict


@pytest.mark.parametrize(
    ("ttsa", "verdict"),
    [
        (falling(0.4, floor=0.9, noise=0.3), Verdict.CONFIRMED),
        (falling(0.4), Verdict.PARTLY),
        (falling(9.0), Verdict.CONTRADICTED),
    ],
)
def test_slow_and_noisy_asks_for_both(ttsa: Callable[[int], History], verdict: Verdict) -> None:
    runs = evidence(stocbio=falling(3.0, noise=0.01), bsa=falling(2.0), ttsa=ttsa)
    assert SlowAndNoisy("ttsa", "stocbio", "test_loss")(runs).verdict == verdict


@pytest.mark.parametrize(
    ("rates", "verdict"),
    [
        ((9.0, 2.0), Verdict.CONFIRMED),
        ((2.0, 9.0), Verdict.CONTRADICTED),
        ((0.5, 0.2), Verdict.CONTRADICTED),  # no lead at all
        ((2.0, 2.0), Verdict.PARTLY),
    ],
)
def test_a_gain_must_fall_from_one_to_the_next(
    rates: tuple[float, float], verdict: Verdict
) -> None:
    runs = {
        name: evidence(stocbio=falling(rate), hoag=falling(1.0))
        for name, rate in zip(("p0.1", "p0.4"), rates, strict=True)
    }
    finding = GainFalls("stocbio", "test_loss", ("p0.1", "p0.4"))(runs)
    assert finding.verdict == verdict
    assert "p0.1" in finding.numbers


def test_a_step_that_ends_after_the_budget_does_not_count() -> None:
    def late(seed: int) -> History:
        start = falling(1.0)(seed)[0]
        return [start, {**start, "seconds": END + 1, "test_loss": 0.1}]

    runs = evidence(ours=falling(3.0), rival=late)
    assert Fastest("ours", ("test_loss",))(runs).verdict == Verdict.CONTRADICTED
    in_time = Evidence.within(runs.curves, END)
    assert Fastest("ours", ("test_loss",))(in_time).verdict == Verdict.CONFIRMED
    assert in_time.seeds == len(SEEDS)


def test_a_run_that_diverged_loses_and_breaks_nothing() -> None:
    def diverged(seed: int) -> History:
        return [{**line, "test_loss": None} for line in falling(1.0)(seed)[1:3]]

    def lost(seed: int) -> History:
        return [falling(1.0)(seed)[0], *diverged(seed)]

    runs = evidence(stocbio=lost, hoag=falling(1.0), ttsa=falling(0.5))
    assert Fastest("stocbio", ("test_loss",))(runs).verdict == Verdict.CONTRADICTED
    assert "stocbio never" in Fastest("stocbio", ("test_loss",))(runs).numbers
    assert EachBeats(("stocbio",), "hoag", "test_loss")(runs).verdict == Verdict.CONTRADICTED
    assert GainFalls("stocbio", "test_loss", ("a",))({"a": runs}).verdict == Verdict.CONTRADICTED


def test_ahead_compares_accuracies_over_all_of_the_time() -> None:
    runs = evidence(quick=falling(2.0), slow=falling(0.5))  # both end at the same accuracy
    assert Ahead("quick", "slow")(runs).verdict is Verdict.CONFIRMED
    assert Ahead("slow", "quick")(runs).verdict is Verdict.CONTRADICTED
    tied = evidence(a=falling(1.0, noise=0.1), b=falling(1.0, noise=0.1))
    assert Ahead("a", "b")(tied).verdict is Verdict.PARTLY


def test_ends_above_needs_each_of_ours_above_each_rival() -> None:
    runs = evidence(best=falling(1.0, 0.2), good=falling(1.0, 0.5), poor=falling(9.0, 0.9))
    assert EndsAbove(("best", "good"), ("poor",))(runs).verdict is Verdict.CONFIRMED
    assert EndsAbove(("best", "poor"), ("good",))(runs).verdict is Verdict.PARTLY
    assert EndsAbove(("poor",), ("best", "good"))(runs).verdict is Verdict.CONTRADICTED


def test_steadier_looks_for_a_drop_and_for_the_spread() -> None:
    def dropping(seed: int) -> History:
        lines = falling(1.0, noise=0.1)(seed)
        for line in lines[60:]:
            line["test_accuracy"] -= 0.3 + 0.05 * seed
        return lines

    runs = evidence(steady=falling(1.0), dropping=dropping)
    assert Steadier("steady", "dropping")(runs).verdict is Verdict.CONFIRMED
    assert Steadier("dropping", "steady")(runs).verdict is Verdict.CONTRADICTED


def test_a_figure_has_a_row_for_each_claim_and_experiment() -> None:
    def always(verdict: Verdict) -> Callable[[Any], Finding]:
        return lambda runs: Finding(verdict, "1 ± 0")

    figure = Figure(
        title="A figure",
        source="A paper",
        experiments=("a", "b"),
        claims={"it is fast": always(Verdict.CONFIRMED)},
        comparisons={"a beats b": always(Verdict.PARTLY)},
    )
    rows = figure.judge({"a": evidence(x=falling(1.0)), "b": evidence(x=falling(1.0))})
    assert [(row.claim, row.experiment, row.verdict) for row in rows] == [
        ("it is fast", "a", "confirmed"),
        ("it is fast", "b", "confirmed"),
        ("a beats b", "a, b", "partly"),
    ]
    assert json.loads(to_json(rows))[2]["verdict"] == "partly"
    page = to_markdown(figure, rows, "bilevel reproduce figure-0")
    assert "## a beats b: partly" in page
    assert "`bilevel reproduce figure-0`" in page


@pytest.mark.parametrize("name", figure_names())
def test_every_figure_can_be_judged(name: str) -> None:
    figure = find_figure(name)
    labels = ("stocbio", "hoag", "ttsa", "bsa", "reverse", "aid-fp", "aid-cg")
    labels += tuple(f"stocbio-{batch}" for batch in (100, 500, 1000, 2000))
    labels += ("aid-bio", "itd-bio", "aid-bio-increasing", "anil", "maml")
    runs = evidence(**{label: falling(1.0 + len(label) / 10) for label in labels})
    rows = figure.judge(dict.fromkeys(figure.experiments, runs))
    assert len(rows) == len(figure.experiments) * len(figure.claims) + len(figure.comparisons)
