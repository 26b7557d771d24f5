"""Records: by attribute and by key."""

from dataclasses import dataclass

import pytest

from bilevel.record import Record


@dataclass(frozen=True)
class Point(Record):
    x: int
    y: str = "north"


def test_fields_are_attributes_and_keys():
    point = Point(3)
    assert (point.x, point["x"]) == (3, 3)
    assert (point.y, point["y"]) == ("north", "north")


def test_record_turns_into_a_dict_in_the_order_of_its_fields():
    assert dict(Point(3)) == {"x": 3, "y": "north"}
    assert list(Point(3)) == list(dict(Point(3))) == ["x", "y"]
    assert {**Point(1, "south")} == {"x": 1, "y": "south"}


def test_membership_is_that_of_the_fields():
    assert "x" in Point(3)
    assert "z" not in Point(3)


@pytest.mark.parametrize("key", ["z", "keys", "__class__"])
def test_unknown_key_raises_with_those_there_are(key):
    with pytest.raises(KeyError, match=rf"{key}.*\['x', 'y'\]"):
        Point(3)[key]
