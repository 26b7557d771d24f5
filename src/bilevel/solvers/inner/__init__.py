"""Solvers of the inner problem min_y g(x, y).

One file each; a solver put into this folder is discovered and offered here.
"""

import sys
from typing import Any

from bilevel.discovery import defined_in
from bilevel.solvers.inner.base import GradientSteps, InnerSolution, InnerSolver, InnerStatus
from bilevel.solvers.measured import Measured

_solvers = defined_in(sys.modules[__name__], InnerSolver)
__all__ = ["GradientSteps", "InnerSolution", "InnerSolver", "InnerStatus", "Measured", *_solvers]


def __getattr__(name: str) -> Any:
    if name in _solvers:
        return _solvers[name]
    raise AttributeError(f"bilevel.inner has no {name!r}; it has {', '.join(__all__)}")
