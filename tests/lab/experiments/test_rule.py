"""The rule of verdicts: what must always hold, and how often it is wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bilevel.lab.experiments.rule import (
    ERROR,
    Gain,
    Verdict,
    _lowest_mean,
    decide,
    interval,
    seeds_needed,
    student,
    weakest,
)

Draw = Callable[[np.random.Generator, tuple[int, int]], NDArray[np.float64]]
CLAIMS = {5: 7000, 10: 2100}  # by seeds: the bootstrap of ten is dearer

# What the gain of two methods that tie may look like: exchangeable, hence symmetric.
TIES: dict[str, Draw] = {
    "normal": lambda rng, size: rng.normal(size=size),
    "heavy tails": lambda rng, size: rng.standard_t(3, size=size),
    "light tails": lambda rng, size: rng.uniform(-1, 1, size=size),
    "log-normal": lambda rng, size: rng.lognormal(size=size) - rng.lognormal(size=size),
    "rounded": lambda rng, size: rng.normal(size=size).round(),
    "mostly equal": lambda rng, size: rng.normal(size=size) * (rng.random(size) < 0.3),
}
values = st.lists(st.floats(-1e3, 1e3, allow_subnormal=False), min_size=5, max_size=12)


def false_pages(draw: Draw, seeds: int, claims: int) -> float:
    """In which share of pages, all of whose claims compare methods that tie, a verdict falls."""
    rng = np.random.default_rng(seeds * claims)
    wrong, pages = 0, CLAIMS[seeds] // claims
    for _ in range(pages):
        rows = draw(rng, (claims, seeds))
        verdicts = [decide([Gain("", tuple(row))], ERROR / claims) for row in rows]
        wrong += any(verdict is not Verdict.UNDECIDED for verdict in verdicts)
    return wrong / pages


@pytest.mark.parametrize("claims", [1, 7])
@pytest.mark.parametrize("seeds", [5, 10])
@pytest.mark.parametrize("shape", TIES)
def test_ties_are_told_apart_on_at_most_one_page_in_twenty(
    shape: str, seeds: int, claims: int
) -> None:
    assert false_pages(TIES[shape], seeds, claims) <= 0.05


def test_ten_seeds_hold_against_gains_of_one_size_and_either_sign() -> None:
    def coin(rng: np.random.Generator, size: tuple[int, int]) -> NDArray[np.float64]:
        return rng.choice([-1.0, 1.0], size=size)

    assert false_pages(coin, 10, 1) <= 0.05
    assert false_pages(coin, 5, 1) == 0.0  # all equal: five signs alone decide nothing


def test_a_clear_effect_is_found() -> None:
    rng = np.random.default_rng(0)
    clear = [decide([Gain("", tuple(rng.normal(5, 1, 5)))], ERROR / 7) for _ in range(200)]
    assert clear.count(Verdict.CONFIRMED) >= 180
    assert Verdict.CONTRADICTED not in clear


def test_many_rivals_do_not_make_a_contradiction() -> None:
    """A claim against six rivals who all tie with it."""
    rng = np.random.default_rng(1)
    pages = [
        decide([Gain("", tuple(rng.normal(size=5))) for _ in range(6)], ERROR) for _ in range(400)
    ]
    assert sum(page is not Verdict.UNDECIDED for page in pages) <= 20


ORDER = [Verdict.CONTRADICTED, Verdict.UNDECIDED, Verdict.CONFIRMED]


@given(values, st.floats(1e-4, 0.2), st.randoms())
@settings(max_examples=60, deadline=None)
def test_the_opposite_gains_have_the_opposite_interval_in_any_order_of_seeds(
    gains: list[float], error: float, random: Random
) -> None:
    there = interval(gains, error)
    back = interval(random.sample([-gain for gain in gains], len(gains)), error)
    if math.isfinite(there.low):
        assert (back.low, back.high) == pytest.approx((-there.high, -there.low), abs=1e-9)
    else:
        assert not math.isfinite(back.high)


@given(values, st.floats(1e-4, 0.2), st.floats(0, 1e3))
@settings(max_examples=60, deadline=None)
def test_greater_gains_never_have_a_worse_verdict(
    gains: list[float], error: float, more: float
) -> None:
    less, better = (
        decide([Gain("", tuple(gain + add for gain in gains))], error) for add in (0, more)
    )
    assert ORDER.index(less) <= ORDER.index(better) or np.ptp(gains) < 1e-9


@given(values, values, st.floats(1e-4, 0.2))
@settings(max_examples=60, deadline=None)
def test_one_more_comparison_never_confirms_and_the_weakest_decides(
    one: list[float], two: list[float], error: float
) -> None:
    gains = [Gain("one", tuple(one)), Gain("two", tuple(two))]
    alone = [decide([gain], error) for gain in gains]
    both = decide(gains, error)
    assert (both is Verdict.CONFIRMED) == (alone == [Verdict.CONFIRMED] * 2)
    assert weakest(gains, error).endswith("; weakest of 2")
    if both is Verdict.CONTRADICTED:
        hangs = gains["two" in weakest(gains, error)]
        assert hangs.interval(error / 2).high < 0


def test_of_comparisons_that_differ_by_rounding_alone_the_first_is_the_weakest() -> None:
    """Gc(f) and JV of one method have the same power of κ, but for the last bits of two fits."""
    level = (2.0, -2.0, 1.0, -1.5, 0.5)
    lower = tuple(value - 1e-13 for value in level)
    assert weakest([Gain("one", level), Gain("two", lower)], 0.05).startswith("one ")


@given(values)
@settings(max_examples=60, deadline=None)
def test_a_smaller_error_never_decides_more(gains: list[float]) -> None:
    wide, narrow = interval(gains, 0.001), interval(gains, 0.05)
    assert wide.low <= narrow.low <= narrow.mean <= narrow.high <= wide.high
    if decide([Gain("", tuple(gains))], 0.05) is Verdict.UNDECIDED:
        assert decide([Gain("", tuple(gains))], 0.001) is Verdict.UNDECIDED


@given(values, st.floats(1e-4, 0.2))
@settings(max_examples=60, deadline=None)
def test_the_same_gains_from_twice_the_seeds_have_a_narrower_interval(
    gains: list[float], error: float
) -> None:
    once, twice = interval(gains, error), interval(gains * 2, error)
    small = 1e-9 * (1 + max(map(abs, gains)))
    assert once.low <= twice.low + small
    assert twice.high <= once.high + small


@pytest.mark.parametrize("error", [0.05, 1e-3, 1e-5])
@pytest.mark.parametrize("shape", TIES)
def test_four_times_the_seeds_nearly_halve_the_interval(shape: str, error: float) -> None:
    gains = list(TIES[shape](np.random.default_rng(0), (1, 10))[0])
    once, often = interval(gains, error), interval(gains * 4, error)
    assert often.high - often.low < 0.6 * (once.high - once.low)


@pytest.mark.parametrize("seeds", [7, 12, 40])
@pytest.mark.parametrize("draw", ["normal", "heavy tails", "log-normal", "mostly equal"])
def test_the_bootstrap_is_what_many_resamples_show(draw: str, seeds: int) -> None:
    rng = np.random.default_rng(seeds)
    gains = TIES[draw](rng, (1, seeds))[0] + rng.exponential(size=seeds)
    means = gains[rng.integers(seeds, size=(100_000, seeds))].mean(1)
    for low in (-1.5, -2.5):  # a share of 0.07 and 0.006 of the means
        below = (means <= _lowest_mean(gains, low)).mean()
        assert NormalDist().inv_cdf(below) == pytest.approx(low, abs=0.15)


@given(values, st.floats(0.01, 100))
@settings(max_examples=30, deadline=None)
def test_units_do_not_matter(gains: list[float], scale: float) -> None:
    one, other = interval(gains, 0.05), interval([scale * gain for gain in gains], 0.05)
    if math.isfinite(one.low):
        assert other.low == pytest.approx(scale * one.low, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(
    "gains",
    [(), (1.0,), (1.0, 1.1, 0.9, 1.0), (0.0,) * 10, (1.0,) * 5, (1.0,) * 9 + (math.nan,)],
)
def test_too_few_seeds_ties_and_what_was_lost_decide_nothing(gains: tuple[float, ...]) -> None:
    assert decide([Gain("", gains)], 0.05) is Verdict.UNDECIDED
    assert decide([], 0.05) is Verdict.UNDECIDED


def test_one_comparison_that_is_open_leaves_the_claim_open() -> None:
    ahead, tied = (1.0, 1.1, 0.9, 1.0, 1.2), (1.0, -1.1, 0.9, -1.0, 0.2)
    assert decide([Gain("", ahead), Gain("", ahead)], 0.05) is Verdict.CONFIRMED
    assert decide([Gain("", ahead), Gain("", tied)], 0.05) is Verdict.UNDECIDED
    behind = tuple(-gain for gain in ahead)
    assert decide([Gain("", ahead), Gain("", behind)], 0.05) is Verdict.CONTRADICTED


def test_values_whose_squares_vanish_have_an_interval() -> None:
    assert interval([0.0, 0.0, 0.0, 0.0, 3e-174], 0.05).high <= 3e-174


@pytest.mark.parametrize("seeds", [5, 10])
def test_a_comparison_that_no_seed_decides_is_weaker_than_one_that_is_ahead(seeds: int) -> None:
    ahead = tuple(1 + 0.1 * seed for seed in range(seeds))
    gains = [Gain("ahead", ahead, "ratio"), Gain("open", (0.0,) * seeds, "ratio")]
    assert weakest(gains, ERROR) == "open: no seed tells them apart; weakest of 2"


@pytest.mark.parametrize(("mean", "rivals"), [(0.5, 1), (0.5, 3), (-0.5, 1), (-0.5, 3)])
def test_the_seeds_that_are_needed_decide_and_one_less_does_not(mean: float, rivals: int) -> None:
    """Where mean and spread stay exactly as they are; the error of a contradiction is shared."""
    rng = np.random.default_rng(0)

    def drawn(n: int) -> tuple[float, ...]:
        raw = rng.normal(size=n)
        return tuple(mean + (raw - raw.mean()) / raw.std(ddof=1))

    clear = [Gain("", tuple(9 + 0.1 * gain for gain in drawn(5))) for _ in range(rivals - 1)]
    needed = seeds_needed([Gain("", drawn(5)), *clear], ERROR)
    assert needed is not None
    shared = ERROR if mean > 0 else ERROR / rivals
    sure, open_ = (student(drawn(n), shared) for n in (needed, needed - 1))
    assert min(abs(sure.low), abs(sure.high)) < 0.5  # only just: beyond zero by less than the mean
    assert sure.low * sure.high > 0 > open_.low * open_.high


def test_no_number_of_seeds_is_named_where_seeds_alone_would_not_decide() -> None:
    ahead, level = Gain("", (1.0, 1.1, 0.9, 1.0, 1.2)), Gain("", (0.0,) * 5)
    small = Gain("", (1.0, -1.0, 1.0, -1.0, 0.01))
    assert seeds_needed([ahead], ERROR) == 5
    assert seeds_needed([ahead, level], ERROR) is None
    assert seeds_needed([ahead, Gain("", ())], ERROR) is None
    assert seeds_needed([ahead, small], ERROR) is None
    assert seeds_needed([Gain("", (-1.0,) * 5), level], ERROR) == 9  # signs alone: 2⁻⁸ < 0.0075
