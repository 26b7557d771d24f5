"""Solvers of the inner problem min_y g(x, y).

One file each; a solver put into this folder is discovered and offered here.
"""

import sys

from bilevel.discovery import defined_in, offering
from bilevel.solvers.inner.base import GradientSteps, InnerSolution, InnerSolver, InnerStatus
from bilevel.solvers.measured import Measured

_solvers = defined_in(sys.modules[__name__], InnerSolver)
__all__ = ["GradientSteps", "InnerSolution", "InnerSolver", "InnerStatus", "Measured", *_solvers]
__getattr__ = offering("bilevel.inner", _solvers, __all__)
