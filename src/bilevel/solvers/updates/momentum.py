"""Gradient descent with momentum, Polyak's and Nesterov's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bilevel.arguments import Fraction
from bilevel.solvers.updates.base import After, Back, Look, Memory, Rated, rate


def _polyak(point: Any, gradient: Any, memory: Any, constants: Any, rate: float, t: int) -> None:
    beta, m = constants[0], memory[0]
    for a in range(len(point)):
        m[a] = beta * m[a] + gradient[a]
        point[a] -= rate * m[a]


def _nesterov(point: Any, gradient: Any, memory: Any, constants: Any, rate: float, t: int) -> None:
    beta, m = constants[0], memory[0]
    for a in range(len(point)):
        m[a] = beta * m[a] + gradient[a]
        point[a] -= rate * (gradient[a] + beta * m[a])


@dataclass(frozen=True)
class Momentum(Rated):
    """m ← β m + g, p ← p − lr m: `torch.optim.SGD(momentum=β)`.

    Args:
        lr: the learning rate, or a schedule.
        beta: β.

    Reference: Polyak, "Some methods of speeding up the convergence of iteration methods", 1964.

    Example:
        >>> import torch
        >>> from bilevel.updates import Momentum, Look
        >>> update, point = Momentum(0.5), torch.ones(2)
        >>> point, memory = update.apply(point, torch.ones(2), update.init(point), Look())
        >>> point
        tensor([0.5000, 0.5000])
    """

    beta: Fraction = 0.9

    is_linear = True
    moves = staticmethod(_polyak)

    def init(self, point: Tensor) -> Memory:
        return {"m": torch.zeros_like(point)}

    def apply(self, point: Tensor, gradient: Tensor, memory: Memory, look: Look) -> After:
        m = memory["m"].mul(self.beta).add_(gradient)
        return point.sub(m, alpha=rate(self.lr, look)), {"m": m}

    def constants(self) -> tuple[float, ...]:
        return (self.beta,)

    def transpose(
        self, r: Tensor, of_memory: dict[str, Tensor], gradient: Tensor, memory: Memory, look: Look
    ) -> Back:
        # m enters the moved point and the next m: their covectors add.
        of_m = r * -rate(self.lr, look) + of_memory.get("m", 0)
        return Back(r, of_m, {"m": self.beta * of_m})


@dataclass(frozen=True)
class Nesterov(Momentum):
    """m ← β m + g, p ← p − lr (g + β m): `torch.optim.SGD(momentum=β, nesterov=True)`.

    Args:
        lr: the learning rate, or a schedule.
        beta: β.

    Reference: Sutskever, Martens, Dahl & Hinton, "On the importance of initialization and
    momentum in deep learning", ICML 2013.

    Example:
        >>> import torch
        >>> from bilevel.updates import Look, Nesterov
        >>> update, point = Nesterov(0.5, beta=0.5), torch.ones(2)  # m = 1, and g + 0.5 m = 1.5
        >>> update.apply(point, torch.ones(2), update.init(point), Look())[0]
        tensor([0.2500, 0.2500])
    """

    moves = staticmethod(_nesterov)

    def apply(self, point: Tensor, gradient: Tensor, memory: Memory, look: Look) -> After:
        m = memory["m"].mul(self.beta).add_(gradient)
        ahead = gradient.add(m, alpha=self.beta)
        return point.sub(ahead, alpha=rate(self.lr, look)), {"m": m}

    def transpose(
        self, r: Tensor, of_memory: dict[str, Tensor], gradient: Tensor, memory: Memory, look: Look
    ) -> Back:
        of_ahead = r * -rate(self.lr, look)
        # As above; the gradient also enters the point directly.
        of_m = self.beta * of_ahead + of_memory.get("m", 0)
        return Back(r, of_ahead + of_m, {"m": self.beta * of_m})
