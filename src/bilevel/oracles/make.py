"""From a problem to its oracle."""

from __future__ import annotations

from bilevel.errors import quoted
from bilevel.oracles.autograd import AutogradOracle
from bilevel.oracles.distributed import DistributedOracle
from bilevel.oracles.points import Oracle
from bilevel.problem.problem import Problem
from bilevel.problem.sharding import Sharded


def make(problem: Problem, seed: int = 0) -> Oracle:
    """The oracle that the problem's model offers, or else automatic differentiation.

    For a sharded problem it covers all rows, through the processes that hold them.

    Example:
        >>> import torch, bilevel
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: (y**2).sum(), inner=lambda x, y: ((y - x) ** 2).sum() / 2,
        ...     x0=torch.ones(2), y0=torch.zeros(2))
        >>> oracle = bilevel.oracles.make(problem)
        >>> point = oracle.linearize(problem.x0, problem.y0)
        >>> point.gradient(), point.hvp(torch.ones(2)), point.cross(torch.ones(2))
        (tensor([-1., -1.]), tensor([1., 1.]), tensor([-1., -1.]))
    """
    found = None if problem.model is None else problem.model.oracle(problem, seed)
    if found is not None and not isinstance(found, Oracle):
        raise TypeError(
            f"{type(problem.model).__name__}.oracle must give a bilevel.oracles.Oracle or None, "
            f"got {quoted(found)}"
        )
    # A model that returns None has nothing faster for this problem.
    local = found or AutogradOracle(problem, seed)
    return DistributedOracle(local, problem) if isinstance(problem, Sharded) else local
