"""The algorithms: one file each, found by being in this folder."""

import sys
from typing import Any

from bilevel.algorithms.double_loop import DoubleLoop
from bilevel.algorithms.registry import Entry, register, registry
from bilevel.algorithms.state import State
from bilevel.discovery import load_modules

load_modules(sys.modules[__name__])
_classes = {entry.algorithm.__name__: entry.algorithm for entry in registry().values()}
__all__ = ["DoubleLoop", "Entry", "State", "register", "registry", *_classes]


def __getattr__(name: str) -> Any:
    for entry in registry().values():
        if entry.algorithm.__name__ == name:
            return entry.algorithm
    raise AttributeError(f"bilevel.algorithms has no {name!r}; it has {', '.join(__all__)}")
