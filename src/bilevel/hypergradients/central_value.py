"""The hypergradient by central differences of a value function: first derivatives only."""

from __future__ import annotations

from dataclasses import dataclass
from math import factorial

import torch
from torch import Tensor

from bilevel.arguments import Count, Positive
from bilevel.errors import quoted
from bilevel.hypergradients.base import Differentiation, Estimate, Stand
from bilevel.hypergradients.tilted import Tilted
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import Cost
from bilevel.problem.sampling import Streams
from bilevel.solvers.inner.base import InnerSolution, InnerSolver
from bilevel.solvers.linear.base import LinearSolution


@dataclass(frozen=True)
class CentralValue(Differentiation):
    """∇Φ(x) = d/dw ∇x ℓ_w(x) at w = 0, with ℓ_w(x) = min_y g(x, y) + w f(x, y).

        ∇Φ(x) ≈ Σ_{j=1..p/2} c_j (∇x ℓ_{jν}(x) − ∇x ℓ_{−jν}(x))/ν,
        ∇x ℓ_w(x) = ∇x g(x, y_w) + w ∇x f(x, y_w)

    c_j are the coefficients of the central difference of order p, and y_w takes the inner solver's
    steps on g + w f, from y − w v. The error is of order ν^p: for p = 2 it costs as much as
    `ValueFunction`, which is the forward difference with ν = 1/λ.

    Args:
        nu: ν; g + wf must be convex for |w| ≤ pν/2, so if f is not convex, ν must stay below the
            strong convexity of g.
        order: p, even.
        batch: the rows of f for each step; None means all rows.

    Example:
        >>> import torch, bilevel
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: (y**2).sum(), inner=lambda x, y: ((y - 3 * x) ** 2).sum(),
        ...     x0=torch.ones(1), y0=torch.zeros(1))
        >>> found = bilevel.hypergradient(
        ...     problem, torch.ones(1), torch.tensor([3.0]),
        ...     method=bilevel.hypergradients.CentralValue(nu=0.01),
        ...     inner=bilevel.inner.GradientDescent(50, 0.25))
        >>> abs(float(found.value) - 18) < 0.01
        True

    Reference: Chen, Li, Chayti & Zhang, ICLR 2026 (F2SA-p).
    """

    nu: Positive
    order: Count = 2
    batch: Count | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.order % 2:
            raise ValueError(f"order must be even, got {quoted(self.order)}")

    def price(self, inner: InnerSolver, warm: bool) -> Cost:
        steps, p = inner.price(), self.order
        D = steps.gc_g
        counted = None if D is None else p * (D + 1)
        twice = None if counted is None else 2 * counted
        return Cost(gc_f=twice, gc_g=counted, hv=steps.hv)

    def estimate(
        self, oracle: Oracle, stand: Stand, inner: InnerSolver, streams: Streams
    ) -> Estimate:
        x, y = stand.x, stand.y
        v = torch.zeros_like(y) if stand.v is None else stand.v
        tilted = Tilted.of(inner, oracle, stand, streams, self.batch)
        rows, rows_f = tilted.last
        covectors, tilts, middle = list[Tensor](), torch.zeros_like(y), y
        for j, c in enumerate(central(self.order), 1):
            w = j * self.nu
            # y_w ≈ y − w v: each copy continues from about where the last outer step left it.
            plus = tilted.solve(oracle, y.sub(v, alpha=w), w)
            minus = tilted.solve(oracle, y.add(v, alpha=w), -w)
            for sign, there in ((1, plus), (-1, minus)):
                g_x = oracle.inner(x, there, rows).gradient_x()
                f_x, _ = oracle.outer(x, there, rows_f).gradient()
                # ∇x ℓ_w: the step −w has the opposite sign, so w f enters with +|w|.
                covectors.append((sign * c / self.nu) * g_x + (c * j) * f_x)
            tilts = tilts + (c / self.nu) * (minus - plus)
            middle = (plus + minus) / 2 if j == 1 else middle
        T = len(tilted.steps)
        # Σ c_j (y_{−jν} − y_{jν})/ν tends to (∇²y g)⁻¹ ∇y f, which is the v of implicit methods.
        linear, inner_solution = LinearSolution(tilts, steps=T), InnerSolution(middle, steps=T)
        # Covectors of x, or of features: summed before the single pull.
        covector = torch.stack(covectors).sum(0)
        return Estimate(oracle.pull(x, covector), inner_solution, linear)


def central(order: Count) -> list[float]:
    """c_1, ..., c_{p/2} with Σ c_j (F(jν) − F(−jν))/ν = F′(0) + O(ν^p).

    Example:
        >>> [round(c, 6) for c in central(4)]
        [0.666667, -0.083333]
    """
    m = order // 2
    # c_j = (−1)^(j+1) (m!)² / (j (m − j)! (m + j)!).
    return [
        (-1) ** (j + 1) * factorial(m) ** 2 / (j * factorial(m - j) * factorial(m + j))
        for j in range(1, m + 1)
    ]
