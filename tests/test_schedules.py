"""Schedules against exact arithmetic."""

import pytest
import torch

import bilevel
from bilevel.schedules import decaying, increasing


def exact_ceil_of_root(numerator, k, root):
    """⌈c (k+1)^(1/root)⌉ for a whole c, in integers: the least n with n^root ≥ c^root (k+1)."""
    target = numerator**root * (k + 1)
    n = 0
    while n**root < target:
        n += 1
    return n


@pytest.mark.parametrize("c", [1, 2, 7])
@pytest.mark.parametrize(("power", "root"), [(0.25, 4), (0.5, 2)])
def test_increasing_is_the_ceiling_of_the_power_exactly(c, power, root):
    schedule = increasing(c, power)
    steps = [*range(300), *(n**root - 1 for n in range(2, 40)), *(n**root for n in range(2, 40))]
    assert [schedule(k) for k in steps] == [exact_ceil_of_root(c, k, root) for k in steps]


def test_increasing_is_not_a_step_too_many_where_the_product_rounds_up():
    assert 2.2 * (25**4) ** 0.25 > 55, "or this proves nothing"
    assert increasing(2.2)(25**4 - 1) == 55


def test_increasing_has_the_power_of_the_paper_by_default_and_never_falls():
    schedule = increasing(3)
    assert schedule == increasing(3, 0.25)
    values = [schedule(k) for k in range(500)]
    assert values == sorted(values)
    assert all(type(value) is int and value >= 1 for value in values)


@pytest.mark.parametrize("power", [0.0, 0.4, 0.5, 1.0])
def test_decaying_is_the_power_of_the_step(power):
    schedule = decaying(0.3, power)
    for k in (0, 1, 9, 1000):
        assert schedule(k) == pytest.approx(0.3 / (k + 1) ** power, rel=1e-15)
        assert type(schedule(k)) is float


@pytest.mark.parametrize("make", [lambda c: increasing(c), lambda c: decaying(c, 0.5)])
@pytest.mark.parametrize("c", [0, -1.0, float("nan"), "2", None, True])
def test_wrong_factor_raises_and_is_quoted(make, c):
    with pytest.raises(ValueError, match="c must be a positive number") as error:
        make(c)
    assert repr(c) in str(error.value)


@pytest.mark.parametrize("schedule", [increasing, decaying])
@pytest.mark.parametrize("power", [-0.5, float("inf"), None])
def test_wrong_power_raises_and_is_quoted(schedule, power):
    with pytest.raises(ValueError, match="power must be a number of at least 0") as error:
        schedule(1.0, power)
    assert repr(power) in str(error.value)


def test_schedules_print_as_they_are_written():
    assert repr(increasing(2)) == "increasing(c=2, power=0.25)"
    assert repr(decaying(0.1, 0.5)) == "decaying(c=0.1, power=0.5)"


def test_schedule_drives_the_inner_steps_of_a_run():
    problem = bilevel.Problem(
        outer=lambda x, y: (y - 1).square().sum(),
        inner=lambda x, y: (y - x).square().sum(),
        x0=torch.zeros(2).double(),
        y0=torch.zeros(2).double(),
    )
    algorithm = bilevel.algorithms.AIDBiO(
        inner_steps=increasing(1, 0.5), inner_lr=0.2, outer_lr=decaying(0.2, 0.5)
    )
    result = bilevel.minimize(problem, algorithm, steps=10)
    steps = [record.report["inner_steps"] for record in result.history]
    assert steps == [1, 2, 2, 2, 3, 3, 3, 3, 3, 4]
