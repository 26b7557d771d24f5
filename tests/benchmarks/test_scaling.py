"""The scaling benchmark: its exponents, its verdicts, and that its sizes are what grows."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from scaling.case import Case, Study  # noqa: E402
from scaling.fits import Exponent, slope, upper_half  # noqa: E402
from scaling.measuring import Curve, measure, run, seconds, weigh  # noqa: E402
from scaling.plot import plot  # noqa: E402
from scaling.problems import NON_ZEROS, problem  # noqa: E402
from scaling.studies import COUNTS, METHODS, doubled, studies  # noqa: E402
from scaling.table import (  # noqa: E402
    LITTLE,
    around_steps,
    memory_exponent,
    table,
    time_exponents,
    verdict,
)

sys.path.remove(str(ROOT / "benchmarks"))

SIZES = (10, 20, 40, 80, 160, 320)
STUDIES = {str(study): study for study in studies()}


def small_case(steps: int = 3, per: int = 3) -> Case:
    made = problem("dense", rows=30, features=4, classes=3, validation=20)
    return Case(made, METHODS["AID-BiO"](), steps, per)


def never(size: int) -> Case:
    raise AssertionError


def curve(
    time: Callable[[int], float],
    memory: Callable[[int], float] = lambda size: 0.0,
    bounds: tuple[float, float] = (1.0, 1.0),
    axis: str = "rows",
) -> Curve:
    """What would have been measured of these laws."""
    study = Study(axis, "dense", "AID-BiO", SIZES, never, *bounds)
    rounds = [[factor * time(size) for size in SIZES] for factor in (1.0, 2.0)]
    return Curve(study, rounds, rounds, [int(memory(size)) for size in SIZES])


# Exponents


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_the_slope_of_a_power_is_its_exponent(power: float) -> None:
    assert slope(SIZES, [3.0 * size**power for size in SIZES]) == pytest.approx(power, abs=1e-8)


def test_the_spread_is_over_rounds_not_over_sizes() -> None:
    rounds = [[size**power for size in SIZES] for power in (0.8, 1.0, 1.5)]
    found = Exponent.of(SIZES, rounds)
    assert (found.least, found.median, found.most) == pytest.approx((0.8, 1.0, 1.5))


def test_a_fixed_cost_lowers_the_exponent_less_in_the_upper_half() -> None:
    every, upper = time_exponents(curve(lambda size: 100 + size))
    assert every.median < upper.median < 1


def test_the_upper_half_of_few_sizes_is_all_of_them() -> None:
    assert list(upper_half([1, 2, 3])) == [1, 2, 3]
    assert list(upper_half([1, 2, 3, 4])) == [2, 3, 4]
    assert list(upper_half(range(8))) == [4, 5, 6, 7]


# Verdicts


@pytest.mark.parametrize(
    ("time", "memory", "bounds", "found"),
    [
        (1.0, 1.0, (1, 1), "within"),
        (1.5, 1.0, (1, 1), "time grows faster"),
        (1.0, 2.0, (1, 1), "memory grows faster"),
        (2.0, 2.0, (1, 1), "time and memory grow faster"),
        (1.0, 0.0, (0, 0), "time grows faster"),
        (0.0, 1.0, (0, 0), "memory grows faster"),
        (1.0, 1.0, (1, 0), "memory grows faster"),
    ],
)
def test_an_exponent_above_its_bound_is_named(
    time: float, memory: float, bounds: tuple[float, float], found: str
) -> None:
    laws = curve(lambda size: size**time, lambda size: LITTLE * size**memory, bounds)
    assert verdict(laws) == found
    assert found in table([laws])


def test_growth_that_only_the_larger_sizes_show_is_found() -> None:
    laws = curve(lambda size: max(80, size) ** 2)
    assert time_exponents(laws)[0].median < 1
    assert verdict(laws) == "time grows faster"


def test_memory_within_the_noise_is_not_judged() -> None:
    laws = curve(lambda size: size, lambda size: LITTLE / 400**2 * size**2)
    assert memory_exponent(laws) is None
    assert "too little to tell" in table([laws])
    assert verdict(laws) == "within"


def test_a_system_that_tells_no_memory_still_gives_a_table() -> None:
    laws = curve(lambda size: size)
    laws.memory = []
    assert "not told" in table([laws])


# What is measured


def test_a_step_lasts_from_its_beginning_to_the_beginning_of_the_next() -> None:
    ticks = count()
    whole, inside = seconds(small_case(), clock=lambda: float(next(ticks)))
    assert (whole, inside) == (2.0, 1.0)  # the clock is looked at twice a step
    assert next(ticks) == 1 + 2 * (3 + 2)  # the first and the last step are not timed


def test_the_time_of_a_whole_run_is_not_divided() -> None:
    ticks = count()
    assert seconds(small_case(per=1), clock=lambda: float(next(ticks))) == (6.0, 3.0)


def test_every_round_measures_every_size() -> None:
    study = Study("rows", "dense", "AID-BiO", (1, 2, 4), lambda size: small_case(size, size))
    found = measure(study, rounds=2)
    assert np.shape(found.seconds) == np.shape(found.inside) == (2, 3)
    assert np.all(np.array(found.seconds) > np.array(found.inside))
    assert np.all(np.array(found.inside) > 0)


def test_the_peak_is_weighed_also_when_it_is_freed_before_the_end() -> None:
    def hold(megabytes: int) -> None:
        block = np.ones(megabytes * 2**20, np.uint8)
        del block

    found = weigh(partial(hold, 64))
    if found is None:
        pytest.skip("this system does not tell the peak of a process")
    assert found == pytest.approx(64 * 2**20, rel=0.05)


# The studies


def test_every_size_of_a_step_is_studied_for_the_algorithms_that_have_it() -> None:
    found = {(study.axis, study.method) for study in STUDIES.values()}
    both = {(study.axis, study.data) for study in STUDIES.values()}
    full, sampled = {"AID-BiO", "ITD-BiO"}, {"stocBiO", "BSA"}
    for axis in ("rows", "features", "classes"):
        assert {(axis, method) for method in (*full, "stocBiO")} <= found
    assert {("D", method) for method in full | sampled} <= found
    assert {(axis, method) for axis in ("Q", "batch") for method in sampled} <= found
    assert ("N", "AID-BiO") in found
    data = ("dense", "sparse")
    axes = ("rows", "features", "classes", "D", "N", "Q", "batch")
    assert {(axis, kind) for axis in axes for kind in data} <= both


@pytest.mark.parametrize("study", STUDIES.values(), ids=str)
def test_sizes_double(study: Study) -> None:
    assert study.sizes == doubled(study.sizes[0], study.sizes[-1])
    assert len(study.sizes) >= 5


@pytest.mark.parametrize("data", ["dense", "sparse"])
@pytest.mark.parametrize("axis", ["rows", "features", "classes"])
def test_only_the_axis_grows(data: str, axis: str) -> None:
    study = STUDIES[f"{axis}, {data}, AID-BiO"]
    first, second = (study.case(size).problem.model.form for size in study.sizes[:2])
    shapes = [
        {"rows": len(form.train_labels), "features": form.shape[0], "classes": form.shape[1]}
        for form in (first, second)
    ]
    grown = {name: shapes[1][name] / shapes[0][name] for name in shapes[0]}
    assert grown == {"rows": 1, "features": 1, "classes": 1, axis: 2}


def test_a_sparse_row_has_as_many_non_zeros_however_many_features_there_are() -> None:
    for features in (2_000, 64_000):
        form = problem("sparse", 200, features, classes=3, validation=20).model.form
        assert 0.95 * NON_ZEROS <= len(form.train.values()) / 200 <= NON_ZEROS


@pytest.mark.parametrize("data", ["dense", "sparse"])
@pytest.mark.parametrize(
    ("axis", "method", "counter"),
    [
        ("D", "AID-BiO", "gc_g"),
        ("D", "ITD-BiO", "jv"),
        ("D", "stocBiO", "gc_g"),
        ("D", "BSA", "gc_g"),
        ("N", "AID-BiO", "hv"),
        ("Q", "stocBiO", "hv"),
        ("batch", "stocBiO", "hv_samples"),
        ("batch", "BSA", "gc_g_samples"),
    ],
)
def test_the_counted_work_is_proportional_to_the_axis(
    data: str, axis: str, method: str, counter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Kernels are billed what torch pays, and here they would have to be compiled.
    monkeypatch.setattr("bilevel.models.softmax.compiled_oracle.usable", lambda: False)
    study = STUDIES[f"{axis}, {data}, {method}"]
    sizes = (study.sizes[0], study.sizes[-1])
    least, most = (getattr(run(study.case(size), 2).counts, counter) for size in sizes)
    assert most / least == sizes[1] / sizes[0]


def test_the_products_of_bsa_grow_with_q() -> None:
    study = STUDIES["Q, dense, BSA"]
    least, most = (run(study.case(size), 20).counts.hv for size in COUNTS)
    assert most / least == pytest.approx(COUNTS[1] / COUNTS[0], rel=0.5)  # uniform below Q


# The page


def test_the_time_around_the_steps_is_told_as_x_grows() -> None:
    laws = curve(lambda size: size, axis="weights")
    laws.inside = [[0.25 * each for each in row] for row in laws.seconds]
    lines = around_steps([laws]).splitlines()
    assert lines[-len(SIZES)].startswith("| 10 | 3750.00 | 11250.00 |")  # 10 and 20 s: 15


def test_without_long_x_there_is_nothing_to_tell_of_it() -> None:
    assert around_steps([curve(lambda size: size)]) == ""


def test_the_plot_is_written(tmp_path: Path) -> None:
    laws = curve(lambda size: size, lambda size: size * 1e6)
    plot([laws, curve(lambda size: 1.0, axis="D")], tmp_path / "scaling.png")
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")
