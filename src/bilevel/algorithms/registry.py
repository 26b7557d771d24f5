"""Every algorithm, with its paper, its demo settings and its cost: each registers itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from bilevel.algorithms.double_loop import DoubleLoop
from bilevel.record import Record


@dataclass(frozen=True)
class Entry(Record):
    """What is known of an algorithm.

    Args:
        name: as on the command line.
        algorithm: the class.
        summary: what it is, in a line.
        paper: where it comes from.
        demo: settings that work on a small, well-scaled problem with data.
        cost: the stated cost of an outer step, in the paper's letters.
    """

    name: str
    algorithm: type[DoubleLoop]
    summary: str
    paper: str
    demo: Mapping[str, Any]
    cost: str

    def make(self, **changes: Any) -> DoubleLoop:
        """The algorithm with its demo settings, changed where asked."""
        return self.algorithm(**{**self.demo, **changes})


_entries: dict[str, Entry] = {}
Algorithm = TypeVar("Algorithm", bound=DoubleLoop)


def register(
    name: str, *, paper: str, cost: str, demo: Mapping[str, Any]
) -> Callable[[type[Algorithm]], type[Algorithm]]:
    """Put an algorithm into the registry; its docstring's first line is its summary."""

    def add(algorithm: type[Algorithm]) -> type[Algorithm]:
        if name in _entries:
            raise ValueError(f"there is already an algorithm named {name!r}")
        summary = (algorithm.__doc__ or "").strip().splitlines()[0]
        _entries[name] = Entry(name, algorithm, summary, paper, dict(demo), cost)
        return algorithm

    return add


def registry() -> dict[str, Entry]:
    """Every algorithm by name.

    Example:
        >>> import bilevel
        >>> print(*bilevel.algorithms.registry())
        aid-bio aid-cg aid-fp bsa hoag itd-bio maml reverse stocbio ttsa
        >>> bilevel.algorithms.registry()["stocbio"].cost
        'Gc(f) 2, Gc(g) D, JV 1, HV Q'
    """
    return dict(sorted(_entries.items()))
