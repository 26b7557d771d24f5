"""Solvers for the linear system ∇²y g(x, y) v = ∇y f(x, y).

One file each; a solver put into this folder is discovered and offered here.
"""

import sys

from bilevel.discovery import defined_in, offering
from bilevel.solvers.linear.base import (
    Hessian,
    LinearSolution,
    LinearSolver,
    LinearStatus,
    MatrixHessian,
)
from bilevel.solvers.linear.cg import from_oracle, if_known, jacobi

_solvers = defined_in(sys.modules[__name__], LinearSolver)
__all__ = [
    "Hessian",
    "LinearSolution",
    "LinearSolver",
    "LinearStatus",
    "MatrixHessian",
    "from_oracle",
    "if_known",
    "jacobi",
    *_solvers,
]
__getattr__ = offering("bilevel.linear", _solvers, __all__)
