"""The algorithms: one file each, discovered in this folder."""

import sys
from typing import Any

from bilevel.algorithms.composed import Composed
from bilevel.algorithms.contract import Algorithm, Report, Solve, State, Write
from bilevel.algorithms.double_loop import DoubleLoop, Parts
from bilevel.algorithms.registry import Entry, named, register, registry
from bilevel.discovery import load_modules

# Importing a file registers its algorithm: there is no list to keep.
load_modules(sys.modules[__name__])
_classes = {entry.algorithm.__name__: entry.algorithm for entry in registry().values()}
__all__ = [
    "Algorithm",
    "Composed",
    "DoubleLoop",
    "Entry",
    "Parts",
    "Report",
    "Solve",
    "State",
    "Write",
    "named",
    "register",
    "registry",
    *_classes,
]


def __getattr__(name: str) -> Any:
    # By the registry, which also has what a user registers after this import.
    for entry in registry().values():
        if entry.algorithm.__name__ == name:
            return entry.algorithm
    raise AttributeError(f"bilevel.algorithms has no {name!r}; it has {', '.join(__all__)}")
