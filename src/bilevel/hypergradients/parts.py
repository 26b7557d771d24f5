"""A hypergradient from parts of the rows, where each row has its own inner variables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from bilevel.errors import UserError
from bilevel.hypergradients.base import Differentiation, Estimate, Stand
from bilevel.oracles.points import Oracle
from bilevel.solvers.inner.base import InnerSolver


def estimate_in_parts(
    method: Differentiation,
    parts: Sequence[Oracle],
    stand: Stand,
    inner: InnerSolver,
    step: int,
) -> Estimate:
    """∇Φ as the mean of the parts' estimates, weighted by their rows.

    Exact if rows are tasks: g is a sum and f a mean over them, and the solves of a part leave
    the variables of other tasks as they are. A solver with a memory would still move these, by
    the momentum of the last outer step, so it is refused. How the solves ended is reported for the
    last part only.
    """
    if len(parts) == 1:
        return method.estimate(parts[0], stand, inner, parts[0].streams(step))
    x, y, v = stand.x, stand.y, stand.v
    rows = [part.outer_rows or 1 for part in parts]
    value, total_v = torch.zeros_like(x), torch.zeros_like(y) if v is None else v
    for part, count in zip(parts, rows, strict=True):
        share = count / sum(rows)
        # A part's v belongs to its own mean of f, which weighs its tasks 1 / share times as much.
        start = None if v is None else total_v / share
        found = method.estimate(part, stand._replace(y=y, v=start), inner, part.streams(step))
        if found.inner.memory:
            raise UserError(
                f"{type(inner).__name__} remembers from one outer step to the next, which chunks "
                "of tasks cannot share: leave chunk out of Tasks, or use keep=False"
            )
        # The next part starts from here: it changes only the variables of its own tasks.
        y = found.inner.y
        value.add_(found.value, alpha=share)
        total_v = found.linear.v * share + (total_v if v is None else 0)
    return replace(found, value=value, linear=replace(found.linear, v=total_v))
