"""The hypergradient from a value function: first derivatives only."""

from __future__ import annotations

from dataclasses import dataclass

from bilevel.arguments import Count, Positive
from bilevel.hypergradients.base import Differentiation, Estimate, Stand
from bilevel.hypergradients.tilted import Tilted
from bilevel.oracles.differences import alike
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import Cost
from bilevel.problem.sampling import Streams
from bilevel.solvers.inner.base import InnerSolution, InnerSolver
from bilevel.solvers.linear.base import LinearSolution


@dataclass(frozen=True)
class ValueFunction(Differentiation):
    """∇Φ(x) ≈ ∇x f(x, p) + λ (∇x g(x, p) − ∇x g(x, y)), with p near argmin f(x, ·)/λ + g(x, ·).

    y takes the inner solver's gradient steps on g, and p the same steps on g + f/λ, on the same
    rows: otherwise the noise of the difference would be λ times as large. p starts from y − v/λ,
    with the last outer step's v: λ (y − p) tends to (∇²y g)⁻¹ ∇y f, which is the v of implicit
    methods. The error is of order 1/λ.

    Args:
        multiplier: λ.
        batch: the rows of f for each step of p; None means all rows.

    Example:
        >>> import torch, bilevel
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: (y**2).sum(), inner=lambda x, y: ((y - 3 * x) ** 2).sum(),
        ...     x0=torch.ones(1), y0=torch.zeros(1))
        >>> found = bilevel.hypergradient(
        ...     problem, torch.ones(1), torch.tensor([3.0]),
        ...     method=bilevel.ValueFunction(multiplier=1000.0),
        ...     inner=bilevel.inner.GradientDescent(50, 0.25))
        >>> abs(float(found.value) - 18) < 0.1
        True

    Reference: Kwon, Kwon, Wright & Nowak, "A fully first-order method for stochastic bilevel
    optimization", ICML 2023; the shared rows and the division by λ, Chen, Ma & Zhang, 2023.
    """

    multiplier: Positive
    batch: Count | None = None

    def price(self, inner: InnerSolver, warm: bool) -> Cost:
        steps = inner.price()
        # Each step of p asks for both partial gradients of f, although it uses only one.
        of_f = None if steps.gc_g is None else 2 * steps.gc_g
        return steps + steps + Cost(gc_f=of_f, gc_g=2) + Cost(gc_f=2)

    def estimate(
        self, oracle: Oracle, stand: Stand, inner: InnerSolver, streams: Streams
    ) -> Estimate:
        x, penalty = stand.x, self.multiplier
        tilted = Tilted.of(inner, oracle, stand, streams, self.batch)
        p = stand.y if stand.v is None else stand.y.sub(stand.v, alpha=1 / penalty)
        y = tilted.solve(oracle, stand.y, 0.0)
        p = tilted.solve(oracle, p, 1 / penalty)
        rows, rows_f = tilted.last
        f_x, _ = oracle.outer(x, p, rows_f).gradient()
        # A difference of nearly equal vectors: rounding is magnified by λ, while the bias falls as
        # 1/λ. In single precision a λ far above 1/√eps ≈ 3000 makes the estimate worse.
        # The same masks, and for a stream the same batch, for both: their noise too is magnified.
        point = oracle.inner(x, p, rows)
        gap = point.gradient_x() - alike(oracle, point, x, rows)(y).gradient_x()
        value, T = oracle.pull(x, f_x + penalty * gap), len(tilted.steps)
        linear = LinearSolution((y - p) * penalty, steps=T)
        return Estimate(value, InnerSolution(y, steps=T), linear)
