"""How a run on many rows begins: y roughly, in batches, before any accurate solve.

From a cold start an accurate solve takes dozens of products on all its rows. One pass over them in
small steps costs about one, and leaves the solve little to do.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bilevel.oracles.plans import Descend, Step, do
from bilevel.oracles.points import Oracle
from bilevel.problem.sampling import first_of
from bilevel.solvers.measured import Measured

_BATCH = 64  # rows of a step
_FEW = 1024  # rows that judge where the steps end
_RATE = Measured(margin=1.5, products=4)  # batches that are not measured may have more curvature


def opened(oracle: Oracle, x: Tensor, y: Tensor, share: float) -> Tensor:
    """y after one pass in batches over this share of the inner rows, if g has fallen; else y.

    The steps begin at 1/L, as measured on two batches, and shrink to nothing, so that the last
    batches do not count for more than the first.
    """
    rows = first_of(oracle.seed, oracle.inner_rows, min(1.0, share))
    if rows is None:
        return y
    batches = torch.split(rows, _BATCH)
    rate = min(_RATE.of(oracle.linearize(x, y, some).hvp, y) for some in batches[:2])
    count = len(batches)
    steps = [Step(some, rate * (1 - t / count)) for t, some in enumerate(batches)]
    there, judges = do(Descend(x, y, steps), oracle), rows[:_FEW]
    before, after = (float(oracle.inner(x, at, judges).value()) for at in (y, there))
    return there if after < before else y


def belongs_to_rows(oracle: Oracle, x: Tensor, y: Tensor) -> bool:
    """Whether rows have entries of x for themselves: ∇x∇y g of two batches has none in common."""
    rows = first_of(oracle.seed, oracle.inner_rows, 1.0)
    if rows is None or oracle.x_size < len(rows):
        return False
    v = oracle.outer(x, y).gradient()[1]
    first, second = (
        oracle.pull(x, oracle.linearize(x, y, some).cross(v), some)
        for some in (rows[:_BATCH], rows[_BATCH : 2 * _BATCH])
    )
    return bool(first.any()) and bool(second.any()) and not bool((first * second).any())
