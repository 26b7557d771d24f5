"""The settings that benchmark_bilevel found by its grids, for its own forms of the methods.

A step of 1/32 and a ratio of 0.01 there are an inner step of 1/32 and an outer one of 1/32/0.01.
"""

from __future__ import annotations

from typing import Any

from bilevel.algorithms import Algorithm, named
from bilevel.errors import UserError, quoted
from bilevel.problem.blocks import Blocks
from bilevel.schedules import decaying

_BLOCKS = {"batch": Blocks(64)}
_SERIES = {"inner_steps": 10, "neumann_terms": 10, **_BLOCKS}
PUBLISHED: dict[tuple[str, str], dict[str, Any]] = {
    ("ijcnn1", "soba"): {
        "inner_lr": decaying(1 / 32, 0.5),
        "outer_lr": decaying(100 / 32, 0.5),
        **_BLOCKS,
    },
    ("ijcnn1", "saba"): {"inner_lr": 0.25, "outer_lr": 0.25, **_BLOCKS},
    ("ijcnn1", "stocbio"): {"inner_lr": 0.25, "neumann_lr": 0.25, "outer_lr": 0.25, **_SERIES},
    ("mnist-cleaning-0.5", "saba"): {"inner_lr": 0.1, "outer_lr": 100.0, **_BLOCKS},
    ("mnist-cleaning-0.5", "stocbio"): {
        "inner_lr": 0.01,
        "neumann_lr": 0.01,
        "outer_lr": 1000.0,
        **_SERIES,
    },
}


def method(problem: str, name: str) -> Algorithm:
    """A method with no number given; with the published ones, if its name ends in ":published"."""
    plain, _, published = name.partition(":")
    entry = named(plain)
    if not published:
        return entry.algorithm()
    known = {m for p, m in PUBLISHED if p == problem}
    if published != "published" or plain not in known:
        raise UserError(
            f"there are no settings {quoted(name)} for {problem}; with :published there are "
            f"{', '.join(sorted(known)) or 'none'}"
        )
    return entry.algorithm(**PUBLISHED[problem, plain])
