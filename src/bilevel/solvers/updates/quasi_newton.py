"""Descent in a metric learned from differences of gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from bilevel.solvers.updates.base import After, Look, Memory, Rated, rate


@dataclass(frozen=True)
class QuasiNewton(Rated):
    """p ← p − lr B g, with B the inverse Hessian that L-BFGS builds from given differences.

    The differences are given and fixed: they come from where gradients are accurate, while g here
    may be noisy.

    Args:
        lr: the learning rate, or a schedule; 1 is Newton's step.
        pairs: rows of `s`, differences of points, and of `z`, those of their gradients. None
            makes B the identity.

    Reference: Liu & Nocedal, 1989; with noise, Byrd, Hansen, Nocedal & Singer, "A stochastic
    quasi-Newton method for large-scale optimization", SIAM J. Optim. 2016.

    Example:
        >>> import torch
        >>> from bilevel.updates import Look, QuasiNewton
        >>> update = QuasiNewton(1.0, {"s": torch.tensor([[1.0]]), "z": torch.tensor([[4.0]])})
        >>> update.apply(torch.tensor([3.0]), torch.tensor([12.0]), {}, Look())[0]
        tensor([0.])
    """

    pairs: Mapping[str, Tensor] = field(default_factory=dict)

    def apply(self, point: Tensor, gradient: Tensor, memory: Memory, look: Look) -> After:
        d = in_metric(self.pairs["s"], self.pairs["z"], gradient) if self.pairs else gradient
        return point.sub(d, alpha=rate(self.lr, look)), memory


def in_metric(s: Tensor, z: Tensor, gradient: Tensor) -> Tensor:
    """B g by the two-loop recursion of L-BFGS."""
    d, alphas = gradient, []
    for i in reversed(range(len(s))):
        alpha = float(s[i] @ d) / float(s[i] @ z[i])
        alphas.append(alpha)
        d = d - alpha * z[i]
    # The newest pair sets the scale: s'z/z'z, an inverse curvature (Liu & Nocedal). In float32 the
    # square of a small z is zero.
    if len(s) and (square := float(z[-1] @ z[-1])) > 0:
        d = d * (float(s[-1] @ z[-1]) / square)
    for i, alpha in zip(range(len(s)), reversed(alphas), strict=True):
        d = d + (alpha - float(z[i] @ d) / float(s[i] @ z[i])) * s[i]
    return d
