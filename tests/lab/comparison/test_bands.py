"""Curves over seeds against values computed by hand."""

import math

import numpy as np
import pytest

from bilevel.lab.comparison.plots import price_scale, value_scale
from bilevel.lab.comparison.tables import mean_and_spread
from bilevel.lab.curves import Curve, band, bands, held
from bilevel.lab.quantities import Metric

LOSS = Metric("loss", "Loss", "low", "log if wide")


def vector(*values):
    return np.array(values, dtype=float)


def curve(seed=0, **columns):
    return Curve("a", seed, {name: vector(*values) for name, values in columns.items()}, "done")


def test_between_measurements_the_last_value_is_held():
    values = held(vector(0, 1, 4), vector(8, 6, 2), vector(0, 0.5, 1, 3.999, 4))
    np.testing.assert_array_equal(values, [8, 8, 6, 6, 2])


def test_of_two_measurements_at_one_place_the_later_counts():
    np.testing.assert_array_equal(held(vector(0, 1, 1), vector(8, 6, 5), vector(1)), [5])


def test_mean_and_range_of_two_step_wise_curves():
    both = band([(vector(0, 2, 4), vector(10, 6, 2)), (vector(0, 1, 3, 5), vector(20, 12, 4, 0))])
    np.testing.assert_array_equal(both.grid, [0, 1, 2, 3, 4])  # not 5: the first curve ends at 4
    np.testing.assert_array_equal(both.mean, [15, 11, 9, 5, 3])
    np.testing.assert_array_equal(both.low, [10, 10, 6, 4, 2])
    np.testing.assert_array_equal(both.high, [20, 12, 12, 6, 4])
    assert both.has_range


def test_the_band_starts_where_the_last_curve_starts():
    both = band([(vector(0, 1, 2), vector(3, 2, 1)), (vector(1.5, 2), vector(5, 4))])
    np.testing.assert_array_equal(both.grid, [1.5, 2])
    np.testing.assert_array_equal(both.mean, [3.5, 2.5])


def test_curves_without_a_common_place_have_no_band():
    assert band([(vector(0, 1), vector(3, 2)), (vector(2, 3), vector(3, 2))]) is None
    assert band([]) is None


def test_a_long_grid_is_thinned_and_keeps_its_ends():
    x = np.arange(1001.0)
    thin = band([(x, x**2)], points=11)
    np.testing.assert_array_equal(thin.grid, np.arange(0, 1001, 100))
    np.testing.assert_array_equal(thin.mean, thin.grid**2)


def test_a_curve_passes_over_what_was_not_measured_and_stops_where_it_is_not_finite():
    one = curve(step=[0, 1, 2, 3, 4], loss=[math.nan, 5, math.nan, 4, math.inf])
    x, values = one.against(["step"], "loss")
    np.testing.assert_array_equal(x, [1, 3])
    np.testing.assert_array_equal(values, [5, 4])


def test_the_price_is_the_sum_of_its_columns():
    x, _ = curve(f=[0, 2], g=[0, 10], loss=[1, 0]).against(["f", "g"], "loss")
    np.testing.assert_array_equal(x, [0, 12])


def test_an_algorithm_without_the_column_has_no_band():
    curves = {"with": (curve(step=[0, 1], loss=[2, 1]),), "without": (curve(step=[0, 1]),)}
    assert list(bands(curves, ["step"], "loss")) == ["with"]


@pytest.mark.parametrize(
    ("values", "scale"),
    [((1, 19), "linear"), ((1, 21), "log"), ((0, 21), "linear"), ((-1, 21), "linear")],
)
def test_losses_are_logarithmic_where_they_are_positive_and_span_a_factor_of_20(values, scale):
    assert value_scale(LOSS, [band([(vector(0, 1), vector(*values))])]) == scale


def test_prices_are_logarithmic_where_the_curves_end_far_apart():
    short, long = (band([(vector(0, end), vector(1, 0))]) for end in (10, 301))
    assert price_scale([short, long]) == "log"
    assert price_scale([short, short]) == "linear"


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([1.0, 2.0, 3.0], "2.0 ± 1.0"),
        ([0.5, 0.5], "0.500 ± 0.000"),
        ([0.3, 0.3 + 1e-9], "0.3000 ± <0.0001"),
        ([120.0, 160.0], "140 ± 28"),
        ([2e7, 4e7], "(3.0 ± 1.4) × 10⁷"),
        ([0.0, 0.0], "0.000 ± 0.000"),
        ([-0.91234], "-0.9123"),
    ],
)
def test_mean_and_spread_have_the_digits_that_the_spread_allows(values, text):
    assert mean_and_spread(values) == text
