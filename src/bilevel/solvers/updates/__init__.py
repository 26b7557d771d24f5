"""How any point moves: x in an outer loop, y in an inner one, v and z in a single loop.

One file each; an update put into this folder is discovered and offered here.
"""

import sys
from typing import Any

from bilevel.discovery import defined_in
from bilevel.solvers.updates.base import Back, Look, Memory, Update

_updates = defined_in(sys.modules[__name__], Update)
__all__ = ["Back", "Look", "Memory", "Update", *_updates]


def __getattr__(name: str) -> Any:
    if name in _updates:
        return _updates[name]
    raise AttributeError(f"bilevel.updates has no {name!r}; it has {', '.join(__all__)}")
