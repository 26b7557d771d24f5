"""BDA: inner steps that follow both losses, and so choose among several inner solutions."""

from __future__ import annotations

from dataclasses import dataclass

from bilevel.algorithms.double_loop import DoubleLoop, Parts
from bilevel.algorithms.registry import register
from bilevel.arguments import Schedule, at
from bilevel.hypergradients.aggregated import Aggregated
from bilevel.solvers.inner.gradient_descent import GradientDescent
from bilevel.solvers.measured import Measured
from bilevel.solvers.updates.descent import Descent

_SAFE = Measured()


@register(
    "bda",
    paper="Liu, Mu, Yuan, Zeng & Zhang, ICML 2020 (BDA)",
    cost="Gc(f) 6D + 2, Gc(g) D, JV D, HV D",
    demo={"inner_steps": 12, "inner_lr": 0.4, "weight": 0.5, "decay": 0.5, "outer_lr": 0.2},
    bias="what the last a_t leave of f in y",
)
@dataclass(frozen=True, kw_only=True)
class BDA(DoubleLoop):
    """ITD through D steps that descend on f and g together: optimistic among inner solutions.

        y ← y − (a_t s ∇y f(x, y) + (1 − a_t) α ∇y g(x, y)),  a_t = a c^t,  t = 0, ..., D − 1
        x ← x − β ∂f(x, y^D(x))/∂x

    See `bilevel.hypergradients.Aggregated`. y continues from the last outer step, where f's part
    has already moved it along the set of inner solutions.

    Args:
        inner_steps: D, or a schedule k -> D_k.
        inner_lr: α, at most 1/L; by default 1/L is measured at each outer step.
        weight: a, below 1.
        decay: c, at most 1; small ones make y^D a solution of the inner problem.
        mixed_lr: s, the step along f.
        outer_lr: β, by default 0.1.

    Example:
        >>> import torch, bilevel
        >>> e = torch.ones(2).double()  # y[2:] is free inside: f decides
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: ((x - y[2:]) ** 2).sum() + ((y[:2] - e) ** 2).sum(),
        ...     inner=lambda x, y: (y[:2] ** 2).sum() / 2 - (x * y[:2]).sum(),
        ...     x0=torch.zeros(2).double(), y0=torch.zeros(4).double())
        >>> algorithm = bilevel.algorithms.BDA(inner_lr=0.5, outer_lr=0.3)
        >>> result = bilevel.minimize(problem, algorithm, steps=40)
        >>> bool((result.x - e).norm() < 1e-4)
        True
    """

    inner_steps: int | Schedule = 10
    inner_lr: float | Measured = _SAFE
    weight: float = 0.5
    decay: float = 0.9
    mixed_lr: float = 0.1

    steady = True

    def parts(self, k: int) -> Parts:
        inner = GradientDescent(at(self.inner_steps, k), self.inner_lr)
        through = Aggregated(self.weight, self.decay, self.mixed_lr)
        return Parts(inner, through, self.moves_x(Descent(0.1)))
