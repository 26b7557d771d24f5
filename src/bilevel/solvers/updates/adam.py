"""Adam."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bilevel.arguments import Schedule, at, fraction, positive
from bilevel.solvers.updates.base import Back, Look, Memory, Update, rate


@dataclass(frozen=True)
class Adam(Update):
    """p ← p − lr m̂/(√v̂ + ε), with m̂ and v̂ the running means of g and of its square.

    The same bits as torch.optim.Adam gives, without its overhead: to make an optimiser at each step
    takes longer than a step of a single-sample method.

    Args:
        lr: the learning rate, or a schedule.
        betas: how fast the running means of g and of g² forget.
        epsilon: ε.

    Reference: Kingma & Ba, "Adam: a method for stochastic optimization", ICLR 2015.
    """

    lr: float | Schedule
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        positive("lr", at(self.lr, 0))
        positive("epsilon", self.epsilon)
        for beta in self.betas:
            fraction("betas", beta)

    def init(self, point: Tensor) -> Memory:
        return {"t": 0, "m": torch.zeros_like(point), "v": torch.zeros_like(point)}

    def apply(
        self, point: Tensor, gradient: Tensor, memory: Memory, look: Look
    ) -> tuple[Tensor, Memory]:
        t, m, v = self._means(gradient, memory)
        scale, size = self._scales(t, v, look)
        return point.addcdiv(m, size, value=-scale), {"t": t, "m": m, "v": v}

    def transpose(
        self, r: Tensor, of_memory: dict[str, Tensor], gradient: Tensor, memory: Memory, look: Look
    ) -> Back:
        beta_m, beta_v = self.betas
        t, m, v = self._means(gradient, memory)
        scale, size = self._scales(t, v, look)
        along = r * (-scale) / size
        # m goes into the moved point and into the next m: their covectors add; v likewise.
        of_m = along + of_memory.get("m", 0)
        # ∂size/∂v = 1/(2 √v √(1 − β^t)). Where v is zero, so is m, and nothing moves: no slope.
        slope = torch.where(v > 0, 0.5 / (v * (1 - beta_v**t)).sqrt(), 0.0)
        of_v = -along * m / size * slope + of_memory.get("v", 0)
        of_gradient = (1 - beta_m) * of_m + 2 * (1 - beta_v) * of_v * gradient
        return Back(r, of_gradient, {"m": beta_m * of_m, "v": beta_v * of_v})

    def _means(self, gradient: Tensor, memory: Memory) -> tuple[int, Tensor, Tensor]:
        beta_m, beta_v = self.betas
        m = memory["m"].lerp(gradient, 1 - beta_m)
        v = memory["v"].mul(beta_v).addcmul_(gradient, gradient, value=1 - beta_v)
        return memory["t"] + 1, m, v

    def _scales(self, t: int, v: Tensor, look: Look) -> tuple[float, Tensor]:
        """lr/(1 − β₁^t) and √v̂ + ε: both means start at zero, and are too small at first."""
        beta_m, beta_v = self.betas
        # In the order of torch.optim.Adam's operations, for the sake of the same bits.
        size = (v.sqrt() / (1 - beta_v**t) ** 0.5).add_(self.epsilon)
        return rate(self.lr, look) / (1 - beta_m**t), size
