"""A step size that is measured instead of given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from bilevel.arguments import Checked, Count, Positive, Schedule, at
from bilevel.numerics.lanczos import extreme_eigenvalues
from bilevel.oracles.points import Oracle
from bilevel.problem.sampling import Streams


@dataclass(frozen=True)
class Measured(Checked):
    """1/(margin · L), with L the largest curvature of g(x, ·) where the solve starts.

    L is measured by Lanczos at each outer step, plus its error estimate; solvers that ask for
    the same measurement in one outer step share it. Steps of 1/L stay clear of 2/L, where gradient
    descent diverges, even if the curvature changes from one outer step to the next: an
    embedding that is learned can scale its features, and L with them.

    Args:
        margin: a safety factor: batches that are not measured may have more curvature.
        batch: the number of rows to measure on; None means all of them.
        products: Hessian-vector products; ITD does not differentiate through them.

    Example:
        >>> import torch, bilevel
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: (y**2).sum(), inner=lambda x, y: 500 * ((y - x) ** 2).sum(),
        ...     x0=torch.ones(1), y0=torch.zeros(1))
        >>> safe = bilevel.inner.GradientDescent(1, bilevel.inner.Measured())
        >>> bilevel.solve_inner(problem, torch.ones(1), safe).y
        tensor([1.])
    """

    margin: Positive = 1.0
    batch: Count | None = None
    products: Count = 8

    def at(self, oracle: Oracle, x: Tensor, y: Tensor, streams: Streams) -> float:
        """The step size, measured once per outer step."""

        def measure() -> float:
            rows = streams.rows("curvature", self.batch)
            return self.of(oracle.linearize(x, y, rows).hvp, y)

        # Keyed by the settings: solvers with equal settings share one measurement.
        return streams.once(self, measure)

    def of(self, product: Callable[[Tensor], Tensor], like: Tensor) -> float:
        """The step size for a Hessian, from products with it."""
        found = extreme_eigenvalues(product, like, self.products)
        # If g is not convex, the largest curvature may be negative.
        L = max(found.largest + found.largest_error, -found.smallest)
        # Flat, or NaN at a point that has diverged: then the step does not matter.
        return 1 / (self.margin * L) if L > 0 else 1.0


Rate = Positive | Schedule | Measured


def rates(
    lr: Rate, count: int, oracle: Oracle, x: Tensor, y: Tensor, streams: Streams
) -> list[float]:
    """The sizes of the next `count` steps from y."""
    if isinstance(lr, Measured):
        return [lr.at(oracle, x, y, streams)] * count
    return [at(lr, t) for t in range(count)] if callable(lr) else [lr] * count
