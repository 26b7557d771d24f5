"""One inner solution by itself, where penalties are as unlike as learning makes them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import bilevel
from bilevel.theory import estimate


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


@pytest.mark.parametrize("unit", [1e-12, 1e-8, 1.0, 1e8])
def test_the_default_inner_solve_does_not_depend_on_the_units_of_g(unit: float) -> None:
    """An absolute tolerance called y0 itself a solution where g is measured in small units."""
    x, y0 = torch.tensor([0.5, 2.0]).double(), torch.zeros(2).double()
    problem = bilevel.Problem(
        lambda x, y: (y**2).sum(), lambda x, y: unit * (y.exp() - x * y).sum(), x, y0
    )
    found = bilevel.solve_inner(problem, x)
    assert found.status == "converged"
    torch.testing.assert_close(found.y, x.log(), rtol=0, atol=1e-6)


def test_seeds_of_numpy_are_seeds() -> None:
    e, b = torch.tensor([1.0, 0.0]).double(), torch.ones(2).double()
    problem = bilevel.Problem(
        lambda x, y: (y**2).sum(), lambda x, y: ((y - x) ** 2).sum() + (y**4).sum(), b, 0 * b
    )
    for function in (
        lambda seed: bilevel.minimize(problem, steps=2, seed=seed).x,
        lambda seed: bilevel.solve_inner(problem, b, seed=seed).y,
        lambda seed: bilevel.hypergradient(problem, b, e, seed=seed).value,
        lambda seed: bilevel.check_hypergradient(problem, b, seed=seed),
        lambda seed: bilevel.certify(problem, b, e, seed=seed),
        lambda seed: estimate(problem, b, e, seed=seed).rho,
    ):
        assert str(function(np.int64(3))) == str(function(3))


def test_a_hypergradient_that_is_not_finite_says_so():
    problem = bilevel.Problem(
        outer=lambda x, y: (y * (x - 1).sqrt()).sum(),  # no derivative by x at 1
        inner=lambda x, y: ((y - x) ** 2).sum(),
        x0=torch.ones(1),
        y0=torch.ones(1),
    )
    found = bilevel.hypergradient(problem, problem.x0, problem.y0)
    assert not found.value.isfinite()
    assert found.status == "not_finite"
