"""The fastest oracle that serves a problem."""

from __future__ import annotations

from bilevel.oracles.autograd import AutogradOracle
from bilevel.oracles.base import Oracle
from bilevel.oracles.softmax import SoftmaxOracle
from bilevel.problem import Problem
from bilevel.softmax import SoftmaxForm


def make_oracle(problem: Problem, seed: int = 0) -> Oracle:
    """Closed forms where the problem has them, automatic differentiation elsewhere."""
    if isinstance(problem.closed_form, SoftmaxForm):
        return SoftmaxOracle(problem.closed_form, seed)
    return AutogradOracle(problem, seed)
