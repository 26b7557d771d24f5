"""Iterative differentiation through inner steps that follow both losses."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from bilevel.arguments import Fraction, Positive, non_negative
from bilevel.errors import quoted
from bilevel.hypergradients.base import Differentiation, Estimate, Stand
from bilevel.oracles.differences import outer_products
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import Cost
from bilevel.problem.sampling import Streams
from bilevel.solvers.inner.base import GradientSteps, InnerSolution, InnerSolver
from bilevel.solvers.linear.base import LinearSolution


@dataclass(frozen=True)
class Aggregated(Differentiation):
    """∂f(x, y^D(x))/∂x through y ← y − (a_t s ∇y f(x, y) + (1 − a_t) α ∇y g(x, y)), a_t = a c^t.

    Among several inner solutions, the part along f leads to the one with the lowest f; the part
    along g vanishes there. The second derivatives of f are differences of its gradients.

    Args:
        weight: a, below 1.
        decay: c, at most 1.
        lr: s, the step along f; at most one over its curvature.

    Example:
        >>> import torch, bilevel
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: (y**2).sum(), inner=lambda x, y: ((y - 3 * x) ** 2).sum(),
        ...     x0=torch.ones(1).double(), y0=torch.zeros(1).double())
        >>> found = bilevel.hypergradient(
        ...     problem, torch.ones(1).double(), torch.tensor([3.0]).double(),
        ...     method=bilevel.hypergradients.Aggregated(weight=0.5, decay=0.5, lr=0.1),
        ...     inner=bilevel.inner.GradientDescent(50, 0.25))
        >>> abs(float(found.value) - 18) < 1e-6
        True

    Reference: Liu, Mu, Yuan, Zeng & Zhang, "A generic first-order algorithmic framework for
    bi-level programming beyond lower-level singleton", ICML 2020 (BDA).
    """

    weight: Fraction = 0.5
    decay: float = 0.9
    lr: Positive = 0.1

    takes = GradientSteps
    refusal = (
        "Aggregated mixes f into gradient steps; {} is not made of them: use GradientDescent or SGD"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if non_negative("decay", self.decay) > 1:
            raise ValueError(f"decay must be at most 1, got {quoted(self.decay)}")

    def price(self, inner: InnerSolver, warm: bool) -> Cost:
        steps = inner.price()
        D = steps.gc_g or 0
        # Forward, ∇y f at each step; backward, two differences per step, of both partial gradients.
        return steps + Cost(gc_f=2 + 6 * D, jv=D, hv=D)

    def estimate(
        self, oracle: Oracle, stand: Stand, inner: InnerSolver, streams: Streams
    ) -> Estimate:
        self.check(inner)
        assert isinstance(inner, GradientSteps)
        x, y = stand.x, stand.y
        path, steps = [], inner.plan(oracle, x, y, streams)
        for t, (rows, alpha) in enumerate(steps):
            path.append(y)
            a = self.weight * self.decay**t
            f_y = oracle.outer(x, y).gradient()[1]
            g_y = oracle.inner(x, y, rows).gradient()
            y = y.sub(f_y, alpha=a * self.lr).sub(g_y, alpha=(1 - a) * alpha)
        h, r = oracle.outer(x, y).gradient()
        total = torch.zeros_like(r)
        # As in Proposition 2, from the last step backwards: r is the product so far, times ∇y f.
        for t, (rows, alpha) in reversed(list(enumerate(steps))):
            a = self.weight * self.decay**t
            of_f, of_g = a * self.lr, (1 - a) * alpha
            f_yy, f_xy = outer_products(oracle, x, path[t], r)
            g_yy, g_xy = oracle.linearize(x, path[t], rows).both(r)
            h = h.sub(f_xy, alpha=of_f).sub(g_xy, alpha=of_g)
            total = total.add(r, alpha=of_g)
            r = r.sub(f_yy, alpha=of_f).sub(g_yy, alpha=of_g)
        D = len(steps)
        linear = LinearSolution(total, steps=D)
        return Estimate(oracle.pull(x, h), InnerSolution(y, steps=D), linear)
