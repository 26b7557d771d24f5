"""Plain gradient descent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from bilevel.arguments import Schedule
from bilevel.errors import quoted
from bilevel.solvers.updates.base import After, Back, Look, Memory, Rated, Update, rate


def _descend(point: Any, gradient: Any, memory: Any, constants: Any, rate: float, t: int) -> None:
    for a in range(len(point)):
        point[a] -= rate * gradient[a]


@dataclass(frozen=True)
class Descent(Rated):
    """p ← p − lr g (the paper, Algorithm 1, line 8 for x and line 5 for y).

    Args:
        lr: the learning rate, or a schedule k -> lr.

    Example:
        >>> import torch
        >>> from bilevel.updates import Descent, Look
        >>> Descent(0.5).apply(torch.ones(2), torch.ones(2), {}, Look())
        (tensor([0.5000, 0.5000]), {})
    """

    is_linear = True
    moves = staticmethod(_descend)

    def apply(self, point: Tensor, gradient: Tensor, memory: Memory, look: Look) -> After:
        return point.sub(gradient, alpha=rate(self.lr, look)), memory

    def transpose(
        self, r: Tensor, of_memory: dict[str, Tensor], gradient: Tensor, memory: Memory, look: Look
    ) -> Back:
        return Back(r, r, {}, -rate(self.lr, look))


def asked_for(outer: Update | None, outer_lr: float | Schedule | None) -> Update | None:
    """The requested update of x, given as such or as a learning rate; None if neither was."""
    if outer_lr is None:
        return outer
    if outer is not None:
        raise ValueError(
            f"give outer_lr = {quoted(outer_lr)} or outer = {quoted(outer)}, not both: an update "
            "has its own learning rate"
        )
    return Descent(outer_lr)
