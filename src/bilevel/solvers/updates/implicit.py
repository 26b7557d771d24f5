"""Gradient descent that treats a known penalty implicitly."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bilevel.solvers.updates.base import After, Look, Memory, Rated, rate


@dataclass(frozen=True)
class ImplicitDescent(Rated):
    """p ← (p − lr d)/(1 + lr c), where the gradient is d + c∘p with a penalty ½ Σ c_a p_a².

    The penalty is taken at the new point: however large it is, no step overshoots, and the fixed
    points are those of descent. As c and p are known, it is p ← p − lr/(1 + lr c)∘gradient. If
    the model knows of no such penalty, it is plain descent. For y and v of a single loop.

    Args:
        lr: the learning rate, or a schedule.

    Example:
        >>> import torch, bilevel
        >>> from bilevel.updates import ImplicitDescent, Look
        >>> penalty = bilevel.oracles.RidgeTerm(torch.tensor([0.0, 1e6]), lambda u: u)
        >>> look = Look(ridge=lambda: penalty)
        >>> point, _ = ImplicitDescent(0.5).apply(torch.ones(2), torch.tensor([1.0, 1e6]), {}, look)
        >>> point.round(decimals=3)
        tensor([0.5000, 0.0000])
    """

    def apply(self, point: Tensor, gradient: Tensor, memory: Memory, look: Look) -> After:
        lr, known = rate(self.lr, look), look.ridge()
        # 1/lr + c, not lr/(1 + lr c): one division, and no overflow for a huge penalty.
        move = gradient * lr if known is None else gradient / (1 / lr + known.c)
        return point.sub(move), memory
