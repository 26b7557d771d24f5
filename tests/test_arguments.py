"""Checks of arguments."""

from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pytest

import bilevel
from bilevel.arguments import (
    Checked,
    Count,
    Natural,
    Positive,
    Schedule,
    _checks,
    at,
    natural,
    non_negative,
    positive,
    positive_integer,
    valid_seed,
)

if TYPE_CHECKING:
    from somewhere import Unknown


@pytest.mark.parametrize(
    ("check", "value"),
    [
        *((positive_integer, v) for v in (1, 7, 10**12, np.int64(4))),
        *((natural, v) for v in (0, 3)),
        *((valid_seed, v) for v in (0, 2**63 - 1)),
        *((positive, v) for v in (1, 0.5, 1e-300, np.float64(0.25), np.float32(0.5))),
        *((non_negative, v) for v in (0, 0.0, 2.5)),
    ],
)
def test_right_value_is_returned_as_it_is(check, value):
    found = check("steps", value)
    assert found == value
    assert type(found) in (int, float), "plain Python numbers, also from NumPy's"


@pytest.mark.parametrize(
    ("check", "value"),
    [
        *((positive_integer, v) for v in (0, -1, 1.0, True, "1", None, [1], 2**63)),
        *((natural, v) for v in (-1, 0.0, False, None)),
        *((valid_seed, v) for v in (-1, 2**63, 2**64)),
        *((positive, v) for v in (0, -0.1, float("nan"), float("inf"), True, "1", None, 2**63)),
        *((non_negative, v) for v in (-1e-9, float("nan"), float("inf"), False, None)),
    ],
)
def test_wrong_value_raises_and_is_quoted_with_its_name(check, value):
    with pytest.raises(ValueError, match="my_steps must be") as error:
        check("my_steps", value)
    assert str(error.value).endswith(f"got {value!r}")


@pytest.mark.parametrize("value", [10**400, -(10**400), Fraction(10**400)], ids=["+", "-", "/"])
def test_what_no_float_can_hold_is_refused_like_any_other(value):
    with pytest.raises(ValueError, match=r"tol must be a positive number, got"):
        positive("tol", value)


def test_schedule_is_called_and_a_constant_kept():
    assert at(lambda k: 3 * k, 4) == 12
    assert at(0.5, 4) == 0.5
    assert at(None, 4) is None


@dataclass(frozen=True)
class Loop(Checked):
    steps: Count
    lr: Positive | Schedule | bilevel.inner.Measured | None = None
    update: bilevel.updates.Update | None = None
    sizes: int | dict[str, Natural] = 1


@pytest.mark.parametrize(
    "given",
    [{}, {"lr": 0.5}, {"lr": lambda k: k + 1}, {"lr": bilevel.inner.Measured()}, {"sizes": "any"}],
)
def test_fields_may_hold_what_their_annotations_allow(given):
    assert Loop(3, **given).steps == 3


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"steps": 0}, "steps must be an integer of at least 1, got 0"),
        ({"steps": 1, "lr": 0.0}, "lr must be a positive number, got 0.0"),
        ({"steps": 1, "lr": lambda k: -k}, "lr must be a positive number, got 0"),
        ({"steps": 1, "update": 0.1}, r"update must be an object such as bilevel.updates.Adam\("),
        ({"steps": 1, "update": bilevel.updates.Descent}, "update must be an object such as"),
    ],
)
def test_a_field_that_holds_anything_else_is_named_with_its_value(given, text):
    with pytest.raises((ValueError, TypeError), match=text):
        Loop(**given)


def test_a_class_of_the_users_with_names_for_type_checkers_alone_keeps_the_checks_of_its_base():
    @dataclass(frozen=True)
    class Mine(Loop):
        other: "Unknown | None" = None

    assert Mine(1, other=3).other == 3
    with pytest.raises(ValueError, match="steps must be an integer"):
        Mine(0)


def _below(kind: type) -> Iterator[type]:
    for other in kind.__subclasses__():
        yield other
        yield from _below(other)


def test_a_field_that_is_declared_again_is_checked_as_in_its_base():
    kinds = {k for k in _below(Checked) if is_dataclass(k) and k.__module__.startswith("bilevel.")}
    assert len(kinds) > 80
    for kind in kinds:
        checked = {name for name, _ in _checks(kind)}
        for base in kind.__mro__[1:]:
            if base in kinds:
                lost = {name for name, _ in _checks(base)} - checked
                assert not lost, f"{kind.__name__} declares {lost} of {base.__name__} unchecked"
