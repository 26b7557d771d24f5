"""A hypergradient from parts of the rows, where each row has inner variables of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from bilevel.hypergradients.base import Differentiation, Estimate
from bilevel.oracles.base import Oracle
from bilevel.solvers.inner.base import InnerSolver


def estimate_in_parts(
    method: Differentiation,
    parts: Sequence[Oracle],
    x: Tensor,
    y: Tensor,
    v: Tensor | None,
    inner: InnerSolver,
    step: int,
) -> Estimate:
    """∇Φ as the mean of the parts' estimates, weighted by their rows.

    Exact where rows are tasks: g is a sum and f a mean over them, and the solves of a part leave
    the variables of other tasks as they are. The memory is that of one part. How the solves
    ended is told of the last part.
    """
    if len(parts) == 1:
        return method.estimate(parts[0], x, y, v, inner, parts[0].streams(step))
    rows = [part.outer_rows or 1 for part in parts]
    value, total_v = torch.zeros_like(x), torch.zeros_like(y) if v is None else v
    for part, count in zip(parts, rows, strict=True):
        share = count / sum(rows)
        # A part's v belongs to its own mean of f, which weighs its tasks 1 / share times as much.
        start = None if v is None else total_v / share
        found = method.estimate(part, x, y, start, inner, part.streams(step))
        y = found.inner.y
        value.add_(found.value, alpha=share)
        total_v = found.linear.v * share + (total_v if v is None else 0)
    return replace(found, value=value, linear=replace(found.linear, v=total_v))
