"""Gradient descent whose step size is measured."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bilevel.arguments import AUTO, positive_integer
from bilevel.numerics.lanczos import extreme_eigenvalues
from bilevel.oracles.base import Oracle, Step
from bilevel.problem.sampling import Streams
from bilevel.problem.sources import Rows
from bilevel.solvers.inner.base import GradientSteps
from bilevel.solvers.inner.gradient_descent import GradientDescent

_PRODUCTS = 8


@dataclass(frozen=True)
class SafeDescent(GradientSteps):
    """`steps` times y ← y − ∇y g(x, y)/L, with L the largest curvature where the steps start.

    L is measured at each solve by Lanczos, its error estimate added. Steps of 1/L keep clear of
    2/L, where gradient descent diverges, also when the curvature changes from one outer step to
    the next: an embedding that is learned can scale its features, and L with them.

    Args:
        steps: D.
        products: Hessian-vector products for L; it is not differentiated by ITD.

    Example:
        >>> import torch, bilevel
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: (y**2).sum(), inner=lambda x, y: 500 * ((y - x) ** 2).sum(),
        ...     x0=torch.ones(1), y0=torch.zeros(1))
        >>> bilevel.solve_inner(problem, torch.ones(1), bilevel.inner.SafeDescent(1)).y
        tensor([1.])
    """

    steps: int
    products: int = _PRODUCTS

    def __post_init__(self) -> None:
        positive_integer("steps", self.steps)
        positive_integer("products", self.products)

    def plan(self, oracle: Oracle, x: Tensor, y: Tensor, streams: Streams) -> list[Step]:
        return [Step(None, safe_step(oracle, x, y, None, self.products))] * self.steps


def safe_step(oracle: Oracle, x: Tensor, y: Tensor, rows: Rows, products: int = _PRODUCTS) -> float:
    """1/L, with L the largest curvature of g(x, ·) at y on these rows, by Lanczos."""
    found = extreme_eigenvalues(oracle.linearize(x, y, rows).hvp, y, products)
    L = found.largest + found.largest_error
    return 1 / L if L > 0 else 1.0


def descent(steps: int, lr: float | str) -> GradientSteps:
    """Gradient descent with this step size, or with a measured one for "auto"."""
    return SafeDescent(steps) if lr == AUTO else GradientDescent(steps, lr)  # type: ignore[arg-type]
