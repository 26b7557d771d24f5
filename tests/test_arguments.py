"""Checks of arguments."""

import numpy as np
import pytest

from bilevel.arguments import (
    at,
    natural,
    non_negative,
    positive,
    positive_integer,
    valid_seed,
)


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


def test_schedule_is_called_and_a_constant_kept():
    assert at(lambda k: 3 * k, 4) == 12
    assert at(0.5, 4) == 0.5
    assert at(None, 4) is None
