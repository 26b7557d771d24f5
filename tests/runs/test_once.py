"""One inner solution by itself, where penalties are as unlike as learning makes them."""

from __future__ import annotations

import torch

import bilevel


def test_the_default_inner_solve_is_right_beside_huge_penalties() -> None:
    """Without the model's diagonal CG sees the penalties alone, and y stays at zero."""
    draw = torch.Generator().manual_seed(0)
    X = torch.randn(60, 8, generator=draw, dtype=torch.float64)
    b = X[:, 0] - X[:, 1]
    problem = bilevel.regression_problem(
        (X[:40], b[:40]), (X[40:], b[40:]), penalty=bilevel.PerFeature()
    )
    x = torch.tensor([-60.0, -50.0, 55.0, 30.0, 60.0, 50.0, 0.0, 45.0], dtype=torch.float64)
    found = bilevel.solve_inner(problem, x)
    kept = [0, 1, 6]  # the others are switched off: least squares on these, in closed form
    A = X[:40, kept]
    ridge = torch.diag(torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64))
    strength = float(_curvature_of_penalty(problem))
    truth = torch.linalg.solve(A.T @ A / 40 + strength * ridge, A.T @ b[:40] / 40)
    assert found.status == "converged"
    assert torch.allclose(found.y[kept, 0], truth, atol=1e-5)
    assert found.y[[2, 3, 4, 5, 7]].abs().max() < 1e-10


def _curvature_of_penalty(problem: bilevel.Problem) -> torch.Tensor:
    """∂²R/∂y² at a log penalty of zero, by the losses themselves: no convention is assumed."""
    rows = bilevel.Batch(
        (torch.zeros(1, 8).double(), torch.zeros(1).double()), torch.zeros(1).long()
    )
    zero, y = torch.zeros(8).double(), torch.zeros(8, 1, dtype=torch.float64)
    y[0] = 1.0
    return 2 * problem.inner(zero, y, rows)
