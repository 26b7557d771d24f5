"""What nested containers hold."""

from collections.abc import Iterator, Mapping
from typing import Any


def leaves(value: Any) -> Iterator[Any]:
    """The parts of dicts, tuples and lists inside each other, in order.

    Example:
        >>> list(leaves({"a": 1, "b": (2, [3])}))
        [1, 2, 3]
    """
    if isinstance(value, Mapping | tuple | list):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from leaves(part)
    else:
        yield value
