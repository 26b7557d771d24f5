"""Every algorithm, with its paper, its demo settings and its cost: each registers itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from bilevel.algorithms.contract import Algorithm
from bilevel.errors import UserError, quoted
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
        steps: how many outer steps the demo needs there.
        bias: the order of its distance from a stationary point of Φ in the limit, if the inner
            problem is strongly convex; empty if only the accuracy of its solves matters.

    Example:
        >>> import bilevel
        >>> entry = bilevel.algorithms.named("reverse")
        >>> entry.make(inner_steps=5).inner_steps, entry.demo["inner_steps"]
        (5, 40)
    """

    name: str
    algorithm: type[Algorithm]
    summary: str
    paper: str
    demo: Mapping[str, Any]
    cost: str
    steps: int = 60
    bias: str = ""

    def make(self, **changes: Any) -> Algorithm:
        """The algorithm with its demo settings, apart from the given changes."""
        return self.algorithm(**{**self.demo, **changes})


# Filled by the decorators, when `bilevel.algorithms` imports its files.
_entries: dict[str, Entry] = {}
Kind = TypeVar("Kind", bound=Algorithm)


def register(
    name: str, *, paper: str, cost: str, demo: Mapping[str, Any], steps: int = 60, bias: str = ""
) -> Callable[[type[Kind]], type[Kind]]:
    """Put an algorithm into the registry; its docstring's first line is its summary."""

    def add(algorithm: type[Kind]) -> type[Kind]:
        if name in _entries:
            raise ValueError(f"there is already an algorithm named {quoted(name)}")
        summary = (algorithm.__doc__ or "").strip().splitlines()[0]
        _entries[name] = Entry(name, algorithm, summary, paper, dict(demo), cost, steps, bias)
        return algorithm

    return add


def registry() -> dict[str, Entry]:
    """Every algorithm by name.

    Example:
        >>> import bilevel
        >>> print(*list(bilevel.algorithms.registry())[:6])
        acc-f2ba aid-bio aid-cg aid-fp aid-qn alset
        >>> bilevel.algorithms.registry()["stocbio"].cost
        'Gc(f) 2, Gc(g) D, JV 1, HV Q'
    """
    # By name: neither the order of imports nor of files shows.
    return dict(sorted(_entries.items()))


def named(name: str) -> Entry:
    """The algorithm of this name.

    Raises:
        UserError: there is none.

    Example:
        >>> import bilevel
        >>> bilevel.algorithms.named("hoag").paper
        'Pedregosa, ICML 2016, Algorithm 1 (HOAG)'
    """
    if name not in _entries:
        raise UserError(f"there is no algorithm {quoted(name)}; there are {', '.join(registry())}")
    return _entries[name]
