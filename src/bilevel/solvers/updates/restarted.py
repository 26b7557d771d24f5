"""Accelerated descent that drops its momentum once that has carried it far."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bilevel.arguments import Fraction, Positive
from bilevel.solvers.updates.base import After, Look, Memory, Rated, rate


@dataclass(frozen=True)
class Restarted(Rated):
    """x = w − lr g(w), w ← x + (1 − θ) (x − x′), with restarts: for losses that are not convex.

    x′ is the x of the previous step, and w, where the next gradient is taken, is the point that is
    moved. With t steps since the last restart and S = Σ ‖x − x′‖² over them, t S > B² triggers a
    restart: w ← x, and B shrinks by a hundredth.

    Args:
        lr: the learning rate, or a schedule.
        theta: θ, between 0 and 1: 1 − θ is the momentum.
        bound: B, how far x may move before a restart; None never restarts.

    Reference: Li & Lin, "Restarted nonconvex accelerated gradient descent", ICML 2022.

    Example:
        >>> import torch
        >>> from bilevel.updates import Look, Restarted
        >>> update, point = Restarted(0.5, theta=0.5), torch.ones(2)  # x = 0.5, half as far again
        >>> update.apply(point, torch.ones(2), update.init(point), Look())[0]
        tensor([0.2500, 0.2500])
    """

    theta: Fraction = 0.1
    bound: Positive | None = 10.0

    def init(self, point: Tensor) -> Memory:
        return {"x": point, "since": 0, "far": 0.0, "bound": self.bound}

    def apply(self, point: Tensor, gradient: Tensor, memory: Memory, look: Look) -> After:
        x = point.sub(gradient, alpha=rate(self.lr, look))
        step = x - memory["x"]
        far, since, bound = memory["far"] + float(step @ step), memory["since"] + 1, memory["bound"]
        if bound is not None and since * far > bound**2:
            return x.clone(), {"x": x, "since": 0, "far": 0.0, "bound": 0.99 * bound}
        moved = x.add(step, alpha=1 - self.theta)
        return moved, {"x": x, "since": since, "far": far, "bound": bound}
