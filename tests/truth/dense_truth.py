"""The truth about derivatives, by whole Hessians and by autograd through every inner step.

Written with torch alone, on the losses themselves: no oracle, no solver of the library.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd.functional import hessian, jacobian

from bilevel import Problem


def inner_solution(problem: Problem, x: Tensor, newton_steps: int = 12) -> Tensor:
    """y*(x) of a convex inner problem, by Newton's method from y0."""
    y = problem.y0
    for _ in range(newton_steps):
        gradient = _inner_gradient(problem, x, y)
        y = y - torch.linalg.solve(_inner_hessian(problem, x, y), gradient)
    return y


def hypergradient(problem: Problem, x: Tensor, y: Tensor | None = None) -> Tensor:
    """∇x f − ∇x∇y g (∇²y g)⁻¹ ∇y f at (x, y), at y*(x) if no y is given."""
    y = inner_solution(problem, x) if y is None else y
    outer_x, outer_y = jacobian(problem.outer_loss, (x, y))
    factor = torch.linalg.cholesky(_inner_hessian(problem, x, y))  # fails if not convex there
    v = torch.cholesky_solve(outer_y[:, None], factor)[:, 0]
    mixed = jacobian(lambda p: _inner_gradient(problem, p, y, create_graph=True), x)
    return outer_x - mixed.T @ v


def curvature_bounds(problem: Problem, x: Tensor, y: Tensor) -> tuple[float, float]:
    """The least and the largest eigenvalue of ∇²y g(x, y)."""
    eigenvalues = torch.linalg.eigvalsh(_inner_hessian(problem, x, y))
    return float(eigenvalues[0]), float(eigenvalues[-1])


def unrolled(
    problem: Problem,
    x: Tensor,
    y: Tensor,
    lrs: Sequence[float],
    rows: Sequence[Tensor | None] | None = None,
    truncate: int | None = None,
) -> Tensor:
    """∂f(x, y^D(x))/∂x by autograd through the steps; the first D − truncate are detached."""
    x, D = x.clone().requires_grad_(), len(lrs)
    for t in range(D):
        if truncate is not None and t == D - truncate:
            y = y.detach()
        batch = None if rows is None else rows[t]
        y = y - lrs[t] * _inner_gradient(problem, x, y, batch, create_graph=True)
    (gradient,) = torch.autograd.grad(problem.outer_loss(x, y), x)
    return gradient


def relative(estimate: Tensor, truth: Tensor) -> float:
    """‖estimate − truth‖/‖truth‖."""
    return float((estimate - truth).norm() / truth.norm())


def _inner_gradient(
    problem: Problem,
    x: Tensor,
    y: Tensor,
    rows: Tensor | None = None,
    create_graph: bool = False,
) -> Tensor:
    y = y if y.requires_grad else y.detach().requires_grad_()
    value = problem.inner_loss(x, y, rows)
    return torch.autograd.grad(value, y, create_graph=create_graph)[0]


def _inner_hessian(problem: Problem, x: Tensor, y: Tensor) -> Tensor:
    return hessian(lambda p: problem.inner_loss(x, p), y)
