"""Adam, plain and with decoupled weight decay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bilevel.arguments import NonNegative, Positive, fraction
from bilevel.solvers.updates.base import After, Back, Look, Memory, Rated, rate


def _move(point: Any, gradient: Any, memory: Any, constants: Any, rate: float, t: int) -> None:
    beta_m, beta_v, epsilon = constants
    m, v = memory[0], memory[1]
    scale, root = rate / (1 - beta_m**t), (1 - beta_v**t) ** 0.5
    for a in range(len(point)):
        m[a] += (1 - beta_m) * (gradient[a] - m[a])
        v[a] = beta_v * v[a] + (1 - beta_v) * gradient[a] * gradient[a]
        point[a] -= scale * m[a] / (v[a] ** 0.5 / root + epsilon)


@dataclass(frozen=True)
class Adam(Rated):
    """p ← p − lr m̂/(√v̂ + ε), with m̂ and v̂ the running means of g and of its square.

    Gives the same bits as torch.optim.Adam, without its overhead: creating an optimiser at each
    step takes longer than a step of a single-sample method.

    Args:
        lr: the learning rate, or a schedule.
        betas: how fast the running means of g and of g² forget.
        epsilon: ε.

    Reference: Kingma & Ba, "Adam: a method for stochastic optimization", ICLR 2015.

    Example:
        >>> import torch
        >>> from bilevel.updates import Adam, Look
        >>> update, point = Adam(0.5), torch.ones(2)
        >>> point, memory = update.apply(point, torch.ones(2), update.init(point), Look())
        >>> point
        tensor([0.5000, 0.5000])
    """

    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: Positive = 1e-8

    moves = staticmethod(_move)

    def __post_init__(self) -> None:
        super().__post_init__()
        for beta in self.betas:
            fraction("betas", beta)

    def init(self, point: Tensor) -> Memory:
        return {"t": 0, "m": torch.zeros_like(point), "v": torch.zeros_like(point)}

    def apply(self, point: Tensor, gradient: Tensor, memory: Memory, look: Look) -> After:
        t, m, v = self._means(gradient, memory)
        scale, size = self._scales(t, v, look)
        return point.addcdiv(m, size, value=-scale), {"t": t, "m": m, "v": v}

    def constants(self) -> tuple[float, ...]:
        return *self.betas, self.epsilon

    def transpose(
        self, r: Tensor, of_memory: dict[str, Tensor], gradient: Tensor, memory: Memory, look: Look
    ) -> Back:
        beta_m, beta_v = self.betas
        t, m, v = self._means(gradient, memory)
        scale, size = self._scales(t, v, look)
        along = r * (-scale) / size
        # m enters the moved point and the next m: their covectors add; likewise for v.
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
        # In the order of torch.optim.Adam's operations, to get the same bits.
        size = (v.sqrt() / (1 - beta_v**t) ** 0.5).add_(self.epsilon)
        return rate(self.lr, look) / (1 - beta_m**t), size


@dataclass(frozen=True)
class AdamW(Adam):
    """p ← (1 − lr·decay) p − lr m̂/(√v̂ + ε): Adam with a decay that does not go through its means.

    Gives the same bits as torch.optim.AdamW.

    Args:
        lr: the learning rate, or a schedule.
        betas: how fast the running means of g and of g² forget.
        epsilon: ε.
        decay: how fast the weights decay, per learning rate.

    Reference: Loshchilov & Hutter, "Decoupled weight decay regularization", ICLR 2019.

    Example:
        >>> import torch
        >>> from bilevel.updates import AdamW, Look
        >>> update, point = AdamW(0.5, decay=0.2), torch.ones(2)  # 0.9, and then Adam's step
        >>> update.apply(point, torch.ones(2), update.init(point), Look())[0]
        tensor([0.4000, 0.4000])
    """

    decay: NonNegative = 0.01

    def apply(self, point: Tensor, gradient: Tensor, memory: Memory, look: Look) -> After:
        return super().apply(point * self._shrinks(look), gradient, memory, look)

    def transpose(
        self, r: Tensor, of_memory: dict[str, Tensor], gradient: Tensor, memory: Memory, look: Look
    ) -> Back:
        back = super().transpose(r, of_memory, gradient, memory, look)
        return back._replace(point=back.point * self._shrinks(look))

    def _shrinks(self, look: Look) -> float:
        return 1 - rate(self.lr, look) * self.decay
