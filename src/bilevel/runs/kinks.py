"""Whether the losses have a kink where a run would call itself converged.

Autograd answers at a kink, too: for |y| at 0 it says 0. Then every gradient may vanish at a point
from which Φ falls. A kink shows beside the point: derivatives of smooth losses approach those at
the point as one looks nearer; at a kink they jump.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bilevel.numerics.lanczos import scattered
from bilevel.numerics.vectors import norm
from bilevel.oracles.points import Oracle

_NEARER = 1e-2  # how much nearer each look is than the one before
_SHRUNK = 0.5  # a difference that shrinks to this, or less, is not a jump
_NEAREST = 100  # times the precision: nearer points are not told apart well
_ROUNDING = 1e4  # times the precision, too: a relative change that rounding may explain


def has_kink(oracle: Oracle, x: Tensor, y: Tensor, v: Tensor) -> bool:
    """Whether one of ∇y g, ∇f, ∇²y g v and ∇x∇y g v jumps at (x, y)."""
    eps = float(torch.finfo(y.dtype).eps)
    here = _derivatives(oracle, x, y, v)
    jumps: list[float] = []
    looks, distance = 0, eps**0.25
    while distance > _NEAREST * eps:
        there = _derivatives(oracle, _beside(x, distance, 0), _beside(y, distance, 1), v)
        found = [
            change if change > _ROUNDING * eps * max(norm(a), norm(b)) else 0.0
            for a, b in zip(here, there, strict=True)
            for change in (norm(b - a),)
        ]
        last = zip(found, jumps or found, strict=True)
        jumps = [near if near > _SHRUNK * far > 0 else 0.0 for near, far in last]
        if not any(jumps):
            return False
        looks, distance = looks + 1, distance * _NEARER
    return looks > 1  # a single one shows no jump: in half precision there is no room for more


def _beside(point: Tensor, distance: float, seed: int) -> Tensor:
    """A point that differs in all entries, by this part of the largest."""
    far = distance * (float(point.abs().max()) or 1.0)
    return point + 2 * far * scattered(len(point), seed).to(point)


def _derivatives(oracle: Oracle, x: Tensor, y: Tensor, v: Tensor) -> list[Tensor]:
    local = oracle.linearize(x, y)
    return [local.gradient(), *oracle.outer(x, y).gradient(), *local.both(v)]
