"""Plain results that can be read by attribute or by key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any


class Record:
    """A dataclass whose fields are also keys: `r.step`, `r["step"]` and `dict(r)` all work.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Point(Record):
        ...     x: int
        >>> point = Point(3)
        >>> point["x"], dict(point)
        (3, {'x': 3})
    """

    def __getitem__(self, key: str) -> Any:
        if key not in self.keys():
            raise KeyError(f"{key!r}; there are {self.keys()}")
        return getattr(self, key)

    def keys(self) -> list[str]:
        assert is_dataclass(self)
        return [field.name for field in fields(self)]

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())
