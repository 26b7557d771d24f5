"""How far x really is from stationary, and Φ(x): dense Hessians in float64, no solver of ours."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.functional import hessian

import bilevel

from .dense_truth import hypergradient


def inner_solution(problem: bilevel.Problem, x: Tensor, y: Tensor) -> Tensor:
    """A local minimum of g(x, ·), by damped Newton steps from y."""
    for _ in range(200):
        at = y.detach().requires_grad_()
        value = problem.inner_loss(x, at)
        (gradient,) = torch.autograd.grad(value, at)
        if not gradient.norm() > 1e-13 * (1 + y.norm()):
            break
        values, vectors = torch.linalg.eigh(hessian(lambda p: problem.inner_loss(x, p), y))
        sizes = values.abs().clamp_min(1e-14 * float(values.abs().max()))
        direction = -vectors @ ((vectors.T @ gradient) / sizes)
        t = 1.0
        while t > 1e-12 and not problem.inner_loss(x, y + t * direction) <= value.detach():
            t /= 2
        if t <= 1e-12:
            break
        y = y + t * direction
    return y


def flat(problem: bilevel.Problem, result: bilevel.Result) -> tuple[Tensor, Tensor]:
    return problem.x_structure.flatten(result.x), problem.y_structure.flatten(result.y)


def true_norm(problem: bilevel.Problem, result: bilevel.Result) -> float:
    """‖∇Φ‖ at the result; infinite where g is not strongly convex."""
    x, y = flat(problem, result)
    y = inner_solution(problem, x, y)
    try:
        return float(hypergradient(problem, x, y).norm())
    except torch.linalg.LinAlgError:
        return math.inf


def phi(problem: bilevel.Problem, x: Tensor, y: Tensor) -> float:
    """f at x and a local inner solution near y."""
    return float(problem.outer_loss(x, inner_solution(problem, x, y)))


def assert_true(problem: bilevel.Problem, result: bilevel.Result, tol: float) -> Any:
    """Converged means converged; doubtful says why and what to try; diverged is not above x0."""
    if result.status == "converged":
        assert true_norm(problem, result) <= 1.2 * tol, result.message
    if result.status == "doubtful":
        assert "cannot be trusted" in result.message
        assert any(word in result.message for word in ADVICE), result.message
    if result.status == "diverged":
        assert "Try a smaller" in result.message
        x, y = flat(problem, result)
        start = phi(problem, problem.x0, problem.y0)
        assert phi(problem, x, y) <= start + 1e-9 * abs(start) + 1e-12
    return result.status


ADVICE = ("add a ridge", "solve the inner problem further", "check that the inner loss", "float64")
