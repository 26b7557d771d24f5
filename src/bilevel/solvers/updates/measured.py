"""Descent whose steps follow the curvature that they meet."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from bilevel.solvers.updates.base import After, Look, Memory, Update

_PROBE = 0.01  # the fraction of f that the first step is meant to remove
_GROWTH = 1e6  # its root: the second step may be a thousand times as long as the probe


@dataclass(frozen=True)
class MeasuredDescent(Update):
    """x ← x − β_k ∇Φ, where β_k follows the curvature that the last step met.

    β_k = min(√(1 + β_{k−1}/β_{k−2}) β_{k−1}, ‖x_k − x_{k−1}‖/(√2 ‖∇Φ(x_k) − ∇Φ(x_{k−1})‖)).
    The first step is a probe: it would lower f by one hundredth if Φ were linear. There is no
    number to choose, whatever the units of x. It needs noise-free hypergradients.

    Reference: Malitsky & Mishchenko, "Adaptive gradient descent without descent", ICML 2020, with
    the step of "Adaptive proximal gradient method for convex optimization", NeurIPS 2024.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> algorithm = bilevel.algorithms.AIDBiO(outer=bilevel.updates.MeasuredDescent())
        >>> bilevel.minimize(halves(), algorithm, steps=30).x
        tensor([0.5000, 0.5000])
    """

    def apply(self, point: Tensor, gradient: Tensor, memory: Memory, look: Look) -> After:
        if memory:
            lr, growth = self._next(point, gradient, memory)
        else:
            # f and the gradient may both be zero: the probe must still be finite.
            value = abs(look.value()) or 1.0
            lr, growth = _PROBE * value / (float(gradient @ gradient) or 1.0), math.inf
        moved = point.sub(gradient, alpha=lr)
        return moved, {"x": point, "h": gradient, "lr": lr, "growth": growth}

    def _next(self, x: Tensor, h: Tensor, memory: Memory) -> tuple[float, float]:
        moved, turned = float((x - memory["x"]).norm()), float((h - memory["h"]).norm())
        longest = math.sqrt(1 + min(memory["growth"], _GROWTH)) * memory["lr"]
        # x did not move, or Φ is linear between the two points: no curvature was met.
        if not moved or not turned:
            return longest if moved else memory["lr"], 1.0
        lr = min(longest, moved / (math.sqrt(2) * turned))
        return lr, lr / memory["lr"]
