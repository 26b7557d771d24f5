"""Outer steps: from the hypergradient to the next x."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bilevel.hypergradients.base import Estimate
from bilevel.oracles.base import Oracle

Memory = dict[str, Any]
OptimizerFactory = Callable[[list[Tensor]], torch.optim.Optimizer]
_PROBE = 0.01  # the part of f that the first step of a measured descent is to take away
_GROWTH = 1e6  # the most that the second step is longer than the probe


class OuterStep(ABC):
    """How x moves. Pure: what it remembers goes in and comes out."""

    @abstractmethod
    def apply(
        self, oracle: Oracle, x: Tensor, estimate: Estimate, memory: Memory
    ) -> tuple[Tensor, Memory]:
        """The next x, and what to remember."""


@dataclass(frozen=True)
class Descent(OuterStep):
    """x ← x − lr ∇Φ (the paper, Algorithm 1, line 8)."""

    lr: float

    def apply(
        self, oracle: Oracle, x: Tensor, estimate: Estimate, memory: Memory
    ) -> tuple[Tensor, Memory]:
        return x.sub(estimate.value, alpha=self.lr), memory


@dataclass(frozen=True)
class MeasuredDescent(OuterStep):
    """x ← x − β_k ∇Φ, where β_k follows the curvature that the last step met.

    β_k = min(√(1 + β_{k−1}/β_{k−2}) β_{k−1}, ‖x_k − x_{k−1}‖/(√2 ‖∇Φ(x_k) − ∇Φ(x_{k−1})‖)).
    The first step is a probe: it would lower f by a hundredth of it, were Φ linear. No number is
    to be chosen, in whatever units x is. It needs hypergradients without noise.

    Reference: Malitsky & Mishchenko, "Adaptive gradient descent without descent", ICML 2020, with
    the step of "Adaptive proximal gradient method for convex optimization", NeurIPS 2024.
    """

    def apply(
        self, oracle: Oracle, x: Tensor, estimate: Estimate, memory: Memory
    ) -> tuple[Tensor, Memory]:
        h = estimate.value
        if memory:
            lr, growth = self._next(x, h, memory)
        else:
            value = abs(float(oracle.outer_value(x, estimate.inner.y)))
            lr, growth = _PROBE * (value or 1.0) / (float(h @ h) or 1.0), math.inf
        return x.sub(h, alpha=lr), {"x": x, "h": h, "lr": lr, "growth": growth}

    def _next(self, x: Tensor, h: Tensor, memory: Memory) -> tuple[float, float]:
        moved, turned = float((x - memory["x"]).norm()), float((h - memory["h"]).norm())
        longest = math.sqrt(1 + min(memory["growth"], _GROWTH)) * memory["lr"]
        if not moved or not turned:
            return longest if moved else memory["lr"], 1.0
        lr = min(longest, moved / (math.sqrt(2) * turned))
        return lr, lr / memory["lr"]


@dataclass(frozen=True)
class AdaGrad(OuterStep):
    """x_i ← x_i − s ∇Φ_i/√(Σ_{j≤k} ∇Φ_i(x_j)²), with s the size of x's entries at the start.

    s is their root mean square, or 1 if all are zero: right for logits and logarithms, which start
    there. It bears noise: steps fall as one over the square root of the steps so far.

    Reference: Duchi, Hazan & Singer, "Adaptive subgradient methods", JMLR 2011.
    """

    def apply(
        self, oracle: Oracle, x: Tensor, estimate: Estimate, memory: Memory
    ) -> tuple[Tensor, Memory]:
        h = estimate.value
        scale = memory.get("scale") or float(x.square().mean().sqrt()) or 1.0
        squares = memory.get("squares", torch.zeros_like(x)).addcmul(h, h)
        # Away from zero, whose root takes six times as long; h is zero there.
        roots = squares.clamp(min=torch.finfo(x.dtype).tiny).sqrt_()
        moved = torch.div(h, roots, out=roots)
        return x.sub(moved, alpha=scale), {"scale": scale, "squares": squares}


@dataclass(frozen=True)
class Adam(OuterStep):
    """x ← x − lr m̂/(√v̂ + ε), with m̂ and v̂ the running means of ∇Φ and of its square.

    The same bits as torch.optim.Adam gives; to make that anew at each step takes longer than a
    step of a single-sample method.

    Reference: Kingma & Ba, "Adam: a method for stochastic optimization", ICLR 2015.
    """

    lr: float
    decay: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8

    def apply(
        self, oracle: Oracle, x: Tensor, estimate: Estimate, memory: Memory
    ) -> tuple[Tensor, Memory]:
        h, (decay_m, decay_v) = estimate.value, self.decay
        t = memory.get("t", 0) + 1
        m = memory.get("m", torch.zeros_like(x)).lerp(h, 1 - decay_m)
        v = memory.get("v", torch.zeros_like(x)).mul(decay_v).addcmul_(h, h, value=1 - decay_v)
        size = (v.sqrt() / (1 - decay_v**t) ** 0.5).add_(self.epsilon)
        return x.addcdiv(m, size, value=-self.lr / (1 - decay_m**t)), {"t": t, "m": m, "v": v}


@dataclass(frozen=True)
class TorchStep(OuterStep):
    """One step of any torch optimiser, whose state is kept between steps."""

    factory: OptimizerFactory
    lr: float | None  # None leaves the optimiser's own

    def apply(
        self, oracle: Oracle, x: Tensor, estimate: Estimate, memory: Memory
    ) -> tuple[Tensor, Memory]:
        parameter = torch.nn.Parameter(x.clone())
        optimizer = self.factory([parameter])
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise TypeError(
                f"outer_optimizer {self.factory!r} must make a torch optimiser from a list of "
                f"parameters, but it made {optimizer!r}"
            )
        if "optimizer" in memory:
            optimizer.load_state_dict(copy.deepcopy(memory["optimizer"]))
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] if self.lr is None else self.lr
        parameter.grad = estimate.value.clone()
        optimizer.step()
        return parameter.detach(), {"optimizer": optimizer.state_dict()}


def outer_step(optimizer: str | OptimizerFactory, lr: float | None) -> OuterStep:
    """Build an outer step from the arguments of an algorithm."""
    if optimizer == "sgd" or (optimizer == "auto" and lr is not None):
        return Descent(0.1 if lr is None else lr)
    if optimizer == "adam":
        return Adam(0.01 if lr is None else lr)
    if callable(optimizer):
        return TorchStep(optimizer, lr)
    raise ValueError(
        f"outer_optimizer must be 'auto', 'sgd', 'adam' or a function that makes a torch optimiser "
        f"from a list of parameters, got {optimizer!r}"
    )
