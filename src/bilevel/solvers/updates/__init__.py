"""How any point moves: x in an outer loop, y in an inner one, v and z in a single loop.

One file each; an update put into this folder is discovered and offered here.
"""

import sys

from bilevel.discovery import defined_in, offering
from bilevel.solvers.updates.base import Back, Look, Memory, Update

_updates = defined_in(sys.modules[__name__], Update)
__all__ = ["Back", "Look", "Memory", "Update", *_updates]
__getattr__ = offering("bilevel.updates", _updates, __all__)
