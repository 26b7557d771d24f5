"""Verdicts: synthetic histories whose outcome is plain to see."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bilevel.lab.curves import Curve, spent_until, stepped, time_to
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
from bilevel.lab.experiments.rule import ERROR, Gain, Verdict, decide
from bilevel.lab.experiments.verdicts import Evidence, Figure, Finding, to_markdown
from bilevel.lab.figures import figure_names, find_figure
from bilevel.lab.quantities import SAMPLES

from .test_rule import TIES

SEEDS = range(5)
END = 10.0
History = list[dict[str, Any]]


def falling(
    rate: float, floor: float = 0.5, noise: float = 0.0, samples: int = 1
) -> Callable[[int], History]:
    """A loss that falls from 2.5 to a floor, a little differently for each seed.

    The noise moves the floor with the seed; a step costs `samples` of each kind.
    """

    def run(seed: int) -> History:
        lines = []
        speed = rate * (1 + 0.01 * (seed - 2))
        for i in range(101):
            time = END * i / 100
            settled = floor + noise * (seed - 2)
            loss = settled + (2.5 - settled) * math.exp(-speed * time)
            line = {"step": i, "seconds": time, "test_accuracy": 1 - loss / 3}
            line |= dict.fromkeys(SAMPLES, samples * i)
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


def judged(judge: Callable[[Any], Finding], runs: Any) -> Verdict:
    return decide(judge(runs).gains, ERROR)


def test_readings_hold_the_last_value() -> None:
    places = enumerate(((0.0, 3.0), (2.0, 1.0), (5.0, None)))
    history = curve("a", 0, [{"step": k, "seconds": t, "loss": v} for k, (t, v) in places])
    assert time_to(history, "loss", 1.0) == 2.0
    assert time_to(history, "loss", 0.5) == math.inf
    assert spent_until(history, "loss", 1.0, ["seconds"]) == (2.0, True)
    assert spent_until(history, "loss", 0.5, ["seconds"]) == (5.0, False)
    seconds, values = stepped(history, "loss")
    assert seconds.tolist() == [2.0, 5.0]
    assert values.tolist() == [1.0, 3.0]  # what was lost counts as the start


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        (falling(3.0), Verdict.CONFIRMED),
        (falling(0.3), Verdict.CONTRADICTED),
        (falling(3.0, floor=0.7), Verdict.CONTRADICTED),  # it never makes 95 % of the fall
        (falling(1.0), Verdict.UNDECIDED),  # a tie
    ],
)
def test_fastest_makes_the_judged_share_of_the_fall_before_all_others(
    ours: Callable[[int], History], verdict: Verdict
) -> None:
    runs = evidence(ours=ours, rival=falling(1.0), other=falling(0.5))
    judge = Fastest("ours", ("test_loss",))
    assert judged(judge, runs) is verdict
    assert "CPU seconds to 90% of the fall of the test loss: ours" in judge(runs).numbers


def test_a_cost_in_samples_is_not_one_in_seconds() -> None:
    runs = evidence(ours=falling(3.0, samples=100), rival=falling(1.0))
    assert judged(Fastest("ours", ("test_loss",)), runs) is Verdict.CONFIRMED
    assert judged(Fastest("ours", ("test_loss",), "samples"), runs) is Verdict.CONTRADICTED


def test_the_factor_of_a_faster_run_is_the_ratio_of_the_rates() -> None:
    (gain,) = Fastest("ours", ("test_loss",))(evidence(ours=falling(2.0), rival=falling(1.0))).gains
    assert math.exp(gain.interval(ERROR).mean) == pytest.approx(2.0, rel=0.07)


def test_where_a_run_stopped_is_a_bound_and_counts_only_if_it_decides() -> None:
    def stopped(seed: int) -> History:
        return falling(1.0, floor=1.5)(seed)[
            : 11 + seed
        ]  # after a tenth of the time, far from the level

    early, late = (
        evidence(ours=falling(9.0), rival=stopped),
        evidence(ours=falling(0.8), rival=stopped),
    )
    assert judged(Fastest("ours", ("test_loss",)), early) is Verdict.CONFIRMED
    assert judged(Fastest("ours", ("test_loss",)), late) is Verdict.UNDECIDED
    (gain,) = Fastest("ours", ("test_loss",))(late).gains
    assert gain.values == (0.0,) * len(SEEDS)


def test_a_bound_says_that_it_is_one() -> None:
    (gain,) = Fastest("ours", ("test_loss",))(
        evidence(ours=falling(3.0), never=falling(3.0, floor=0.9))
    ).gains
    assert gain.bounds == len(SEEDS)
    assert gain.text(ERROR).endswith("(bounds in 5 of 5 seeds)")


@pytest.mark.parametrize(
    ("floor", "noise", "verdict"),
    [
        (0.3, 0.01, Verdict.CONFIRMED),
        (0.8, 0.01, Verdict.CONTRADICTED),
        (0.49, 0.1, Verdict.UNDECIDED),  # ahead by less than the spread
    ],
)
def test_an_end_above_needs_a_clear_lead(floor: float, noise: float, verdict: Verdict) -> None:
    runs = evidence(ours=falling(3.0, floor, noise), rival=falling(3.0, 0.5))
    judge = EndsAbove(("ours",))
    assert judged(judge, runs) is verdict
    assert "test accuracy after 10 s: ours 0." in judge(runs).numbers


def test_ends_above_needs_each_of_ours_above_each_rival() -> None:
    runs = evidence(
        best=falling(1.0, 0.2, 0.001), good=falling(1.0, 0.5, 0.002), poor=falling(9.0, 0.9)
    )
    assert judged(EndsAbove(("best", "good"), ("poor",)), runs) is Verdict.CONFIRMED
    assert judged(EndsAbove(("best", "poor"), ("good",)), runs) is Verdict.CONTRADICTED


@pytest.mark.parametrize(
    ("rates", "verdict"),
    [
        ((2.0, 3.0), Verdict.CONFIRMED),
        ((2.0, 0.5), Verdict.CONTRADICTED),  # each must
        ((1.0, 1.0), Verdict.UNDECIDED),
    ],
)
def test_each_must_be_ahead_of_the_rival(rates: tuple[float, float], verdict: Verdict) -> None:
    runs = evidence(a=falling(rates[0]), b=falling(rates[1]), hoag=falling(1.0))
    assert judged(Ahead(("a", "b"), "hoag", ("test_loss",), better=-1), runs) is verdict
    assert judged(Ahead(("a", "b"), "hoag", ("test_accuracy",)), runs) is verdict


def test_nothing_counts_before_both_have_made_a_step() -> None:
    """What P6 was: another value at the start, held until the first evaluation."""

    def slow_to_begin(value: float) -> Callable[[int], History]:
        def run(seed: int) -> History:
            start, *rest = falling(1.0)(seed)
            return [{**start, "test_accuracy": value + 0.001 * seed}, *rest[30:]]

        return run

    runs = evidence(lucky=slow_to_begin(0.9), other=slow_to_begin(0.1))
    gain = Ahead(("lucky",), "other", ("test_accuracy",))(runs).gains[0]
    assert gain.values == (0.0,) * len(SEEDS)


@pytest.mark.parametrize(
    ("floor", "verdict"), [(0.505, Verdict.CONFIRMED), (1.0, Verdict.CONTRADICTED)]
)
def test_alike_measures_differences_by_the_fall(floor: float, verdict: Verdict) -> None:
    runs = evidence(a=falling(3.0), b=falling(3.0, floor, 0.001))
    assert judged(Alike(("a", "b"), "test_loss"), runs) is verdict


@pytest.mark.parametrize(
    ("ttsa", "verdict"),
    [
        (falling(0.4, floor=1.4, noise=0.3), Verdict.UNDECIDED),  # the middle seed has no distance
        (falling(1.0, floor=0.2), Verdict.CONTRADICTED),
    ],
)
def test_slow_and_noisy_asks_for_both(ttsa: Callable[[int], History], verdict: Verdict) -> None:
    runs = evidence(stocbio=falling(1.0, noise=0.01), bsa=falling(2.0), ttsa=ttsa)
    slow, noisy = SlowAndNoisy("ttsa", "stocbio", "test_loss")(runs).gains
    assert judged(SlowAndNoisy("ttsa", "stocbio", "test_loss"), runs) is verdict
    if verdict is Verdict.UNDECIDED:
        assert decide([slow], ERROR) is Verdict.CONFIRMED
        assert noisy.interval(ERROR).mean > 0


@pytest.mark.parametrize(
    ("rates", "verdict"),
    [
        ((9.0, 2.0), Verdict.CONFIRMED),
        ((2.0, 9.0), Verdict.CONTRADICTED),
        ((0.5, 0.2), Verdict.CONTRADICTED),  # no lead at all
    ],
)
def test_a_gain_must_fall_from_one_to_the_next(
    rates: tuple[float, float], verdict: Verdict
) -> None:
    runs = {
        name: evidence(stocbio=falling(rate), hoag=falling(1.0))
        for name, rate in zip(("p0.1", "p0.4"), rates, strict=True)
    }
    judge = GainFalls("stocbio", ("hoag",), "test_loss", ("p0.1", "p0.4"))
    assert judged(judge, runs) is verdict
    assert judge(runs).gains[1].what == "fall of the lead over hoag from p0.1 to p0.4"


def test_a_step_that_ends_after_the_budget_does_not_count() -> None:
    def late(seed: int) -> History:
        start = falling(1.0)(seed)[0]
        return [start, {**start, "step": 1, "seconds": END + 1, "test_loss": 0.1}]

    runs = evidence(ours=falling(3.0), rival=late)
    assert "rival 11" in Fastest("ours", ("test_loss",))(runs).numbers
    in_time = Evidence.within(runs.curves, END)
    assert "rival never" in Fastest("ours", ("test_loss",))(in_time).numbers
    (gain,) = Fastest("ours", ("test_loss",))(in_time).gains
    assert gain.values == (0.0,) * len(SEEDS)  # the rival has spent nothing: no bound
    assert in_time.seeds == len(SEEDS)


@pytest.mark.parametrize("late", [-0.002, 0.0, 0.002])
def test_on_which_side_of_the_budget_the_last_step_ends_does_not_matter(late: float) -> None:
    """With few evaluations, the one before the last is a long way back."""

    def run(seed: int) -> History:
        lines = falling(0.3)(seed)
        return [lines[0], lines[50], {**lines[100], "seconds": END * (1 + late)}]

    runs = Evidence.within(evidence(ours=run).curves, END)
    assert [c.last("step") for c in runs.curves["ours"]] == [100.0] * len(SEEDS)


def test_runs_are_compared_with_those_of_the_same_seed_whatever_their_order() -> None:
    """An interrupted experiment has seeds that only some methods have run."""
    whole = evidence(ours=falling(3.0, noise=0.1), rival=falling(1.0, noise=0.1)).curves
    left = {"ours": whole["ours"][:-1], "rival": [*reversed(whole["rival"])]}
    runs = Evidence.within(left, END)
    assert runs.seeds == len(SEEDS) - 1
    (some,), (every,) = (
        EndsAbove(("ours",), ("rival",))(each).gains for each in (runs, Evidence.within(whole, END))
    )
    assert some.values == every.values[:-1]


def test_a_run_that_diverged_loses_and_breaks_nothing() -> None:
    def lost(seed: int) -> History:
        start, *rest = falling(1.0)(seed)
        return [start, *({**line, "test_loss": None} for line in rest)]

    runs = evidence(stocbio=lost, hoag=falling(1.0), ttsa=falling(0.5))
    assert judged(Fastest("stocbio", ("test_loss",)), runs) is Verdict.CONTRADICTED
    assert "stocbio never" in Fastest("stocbio", ("test_loss",))(runs).numbers
    ahead = Ahead(("stocbio",), "hoag", ("test_loss",), better=-1)
    assert judged(ahead, runs) is Verdict.CONTRADICTED


def test_steadier_looks_for_a_drop_and_for_the_spread() -> None:
    def dropping(seed: int) -> History:
        lines = falling(1.0, noise=0.1)(seed)
        for line in lines[60:]:
            line["test_accuracy"] -= 0.3 + 0.05 * seed
        return lines

    drops, spread = Steadier("steady", "dropping")(
        evidence(steady=falling(1.0), dropping=dropping)
    ).gains
    assert decide([drops], ERROR) is Verdict.CONFIRMED
    assert spread.interval(ERROR).mean > 0


@pytest.mark.parametrize("shape", ["normal", "heavy tails", "light tails", "log-normal"])
@pytest.mark.parametrize("seeds", [5, 10])
def test_runs_that_spread_alike_are_told_apart_on_at_most_one_page_in_twenty(
    shape: str, seeds: int
) -> None:
    """The distances from a mean over seeds are not independent."""
    rng, wrong, pages = np.random.default_rng(seeds), 0, 400

    def run(seed: int, value: float) -> Curve:
        line = {"step": 1.0, "seconds": END, "test_accuracy": value}
        return curve("", seed, [{**line, "step": 0.0, "seconds": 0.0}, line])

    for _ in range(pages):
        a, b = TIES[shape](rng, (2, seeds))
        runs = {"a": list(map(run, range(seeds), a)), "b": list(map(run, range(seeds), b))}
        noisier = Steadier("a", "b")(Evidence(runs, END)).gains[1]
        wrong += decide([noisier], ERROR) is not Verdict.UNDECIDED
    assert wrong / pages <= 0.05


def test_a_figure_has_a_row_for_each_claim_and_experiment() -> None:
    def always(*values: float) -> Callable[[Any], Finding]:
        return lambda runs: Finding((Gain("a − b", values),), "more numbers")

    figure = Figure(
        title="A figure",
        source="A paper",
        experiments=("a", "b"),
        claims={"it is fast": always(1.0, 1.1, 0.9, 1.05, 1.0)},
        comparisons={"a beats b": always(1.0, -1.0, 0.5, 0.2, -0.3)},
    )
    rows = figure.judge({"a": evidence(x=falling(1.0)), "b": evidence(x=falling(1.0))})
    assert [(row.claim, row.experiment, row.verdict) for row in rows] == [
        ("it is fast", "a", "confirmed"),
        ("it is fast", "b", "confirmed"),
        ("a beats b", "a, b", "undecided"),
    ]
    assert vars(rows[2])["verdict"] == "undecided"
    page = to_markdown(figure, rows, "bilevel reproduce figure-0")
    assert "## a beats b: undecided" in page
    assert "a − b +1.01 [" in page
    assert "`bilevel reproduce figure-0`" in page


def test_the_number_of_claims_widens_the_intervals() -> None:
    values = (1.0, 2.0, 3.0, 1.5, 2.5)

    def figure(claims: int) -> Figure:
        judge = lambda runs: Finding((Gain("", values),), "")  # noqa: E731
        return Figure("", "", ("a",), {f"claim {i}": judge for i in range(claims)})

    runs = {"a": evidence(x=falling(1.0))}
    assert {row.verdict for row in figure(1).judge(runs)} == {"confirmed"}
    assert {row.verdict for row in figure(50).judge(runs)} == {"undecided"}


LABELS = (
    *("stocbio", "hoag", "ttsa", "bsa", "reverse", "aid-fp", "aid-cg"),
    *(f"stocbio-{batch}" for batch in (100, 500, 1000, 2000)),
    *("aid-bio", "itd-bio", "aid-bio-increasing", "anil", "maml", "itd-bio-equal"),
    *("soba", "saba", "amigo", "f2sa", "ma-soba", "anchored-aid"),
)


@pytest.mark.parametrize("name", figure_names())
def test_every_figure_can_be_judged(name: str) -> None:
    figure = find_figure(name)
    runs = evidence(**{label: falling(1.0 + len(label) / 10) for label in LABELS})
    rows = figure.judge(dict.fromkeys(figure.experiments, runs))
    assert all(row.effect for row in rows)
    assert len(rows) == len(figure.experiments) * len(figure.claims) + len(figure.comparisons)


@pytest.mark.parametrize("name", figure_names())
def test_a_figure_can_be_judged_with_any_method_left_out_and_confirms_nothing_of_it(
    name: str,
) -> None:
    figure = find_figure(name)
    runs = evidence(**{label: falling(1.0 + len(label) / 10) for label in LABELS})
    whole = figure.judge(dict.fromkeys(figure.experiments, runs))
    assert "not run" not in " ".join(row.effect for row in whole)
    for label in LABELS:
        left = Evidence({one: of for one, of in runs.curves.items() if one != label}, END)
        rows = figure.judge(dict.fromkeys(figure.experiments, left))
        for row, before in zip(rows, whole, strict=True):
            needed = label in re.findall(r"[\w.-]+", before.effect)
            assert ("not run" in row.effect) == needed, row
            assert not (needed and row.verdict == "confirmed")


def test_a_lead_over_samples_ends_where_the_cheaper_run_ends() -> None:
    def run(samples: list[float], accuracy: list[float]) -> Curve:
        steps = np.arange(len(samples), dtype=float)
        columns = {"step": steps, "seconds": steps, "test_accuracy": np.array(accuracy)}
        zeros = dict.fromkeys(SAMPLES, np.zeros(len(samples)))
        return Curve("", 0, columns | zeros | {SAMPLES[0]: np.array(samples)})

    # Between 10 and 30 samples: 0.5 throughout, against 0.3 up to 20 and 0.4 after.
    cheap = run([0, 10, 20, 30], [0, 0.3, 0.4, 0.4])
    dear = run([0, 10, 100, 200], [0, 0.5, 0.9, 0.9])
    runs = Evidence({"dear": [dear], "cheap": [cheap]}, 3.0)
    over = {
        cost: Ahead(("dear",), "cheap", ("test_accuracy",), cost=cost)(runs).gains[0].values[0]
        for cost in COSTS
    }
    assert over["samples"] == pytest.approx(0.15)
    assert over["CPU seconds"] == pytest.approx(0.35)


def test_an_experiment_that_was_not_run_has_no_row_and_keeps_its_share_of_the_error() -> None:
    judge = lambda runs: Finding((Gain("", (1.0, 2.0, 3.0, 1.5, 2.5)),), "")  # noqa: E731
    figure = Figure("", "", ("a", "b"), {"claim": judge}, {"both": judge})
    runs = evidence(x=falling(1.0))
    (alone,) = figure.judge({"a": runs})
    assert alone == figure.judge({"a": runs, "b": runs})[0]


def test_a_comparison_with_a_run_that_was_left_out_confirms_nothing() -> None:
    def flat(height: float) -> Callable[[int], History]:
        return lambda seed: [line | {"test_accuracy": height * (1 + seed / 100)} for line in
                             falling(1.0)(seed)]  # fmt: skip

    claim = EndsAbove(("good",), ("bad", "absent"))
    assert judged(claim, evidence(good=flat(0.9), bad=flat(0.1))) is Verdict.UNDECIDED
    assert judged(claim, evidence(good=flat(0.1), bad=flat(0.9))) is Verdict.CONTRADICTED
