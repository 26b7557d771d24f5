"""AdaGrad."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bilevel.arguments import Positive, Schedule
from bilevel.schedules import Values
from bilevel.solvers.updates.base import After, Look, Memory, Update, rate, rates_of


def _move(point: Any, gradient: Any, memory: Any, constants: Any, rate: float, t: int) -> None:
    squares = memory[0]
    for a in range(len(point)):
        squares[a] += gradient[a] * gradient[a]
        if squares[a] > 0:
            point[a] -= rate * gradient[a] / squares[a] ** 0.5


@dataclass(frozen=True)
class AdaGrad(Update):
    """p_i ← p_i − lr g_i/√(Σ_{j≤k} g_i²), each entry with its own step size.

    It tolerates noise: steps fall as one over the square root of the number of steps so far.

    Args:
        lr: the learning rate, or a schedule. None takes the root mean square of the point's
            entries at the start, or 1 if all are zero: right for logits and logarithms,
            which start there.

    Reference: Duchi, Hazan & Singer, "Adaptive subgradient methods", JMLR 2011.

    Example:
        >>> import torch
        >>> from bilevel.updates import AdaGrad, Look
        >>> update, point = AdaGrad(0.5), torch.ones(2)
        >>> update.apply(point, torch.tensor([4.0, -0.1]), update.init(point), Look())[0]
        tensor([0.5000, 1.5000])
    """

    lr: Positive | Schedule | None = None

    moves = staticmethod(_move)

    def init(self, point: Tensor) -> Memory:
        scale = float(point.square().mean().sqrt()) or 1.0
        return {"scale": scale, "squares": torch.zeros_like(point)}

    def rates(self, memory: Memory, steps: range) -> Values:
        return rates_of(memory["scale"] if self.lr is None else self.lr, steps)

    def apply(self, point: Tensor, gradient: Tensor, memory: Memory, look: Look) -> After:
        # Not in place: the memory belongs to the last state, to which the run may yet return.
        squares = memory["squares"].addcmul(gradient, gradient)
        # Clamp away from zero, which would give 0/0 and whose root takes six times as long; the
        # gradient is zero there, and so is the move.
        roots = squares.clamp(min=torch.finfo(point.dtype).tiny).sqrt_()
        moved = torch.div(gradient, roots, out=roots)
        lr = memory["scale"] if self.lr is None else rate(self.lr, look)
        return point.sub(moved, alpha=lr), {"scale": memory["scale"], "squares": squares}
