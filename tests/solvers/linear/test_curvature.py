"""A Hessian that is not positive definite is reported, not hidden."""

import math

import pytest
import torch
from bilevel.linear import CG, Dense, MatrixHessian, jacobi


def diagonal(*entries):
    return MatrixHessian(torch.diag(torch.tensor(entries, dtype=torch.float64)))


@pytest.mark.parametrize("seed", range(20))
def test_cg_meets_a_negative_eigenvalue_within_n_steps(spd, seed):
    H, b = spd(torch.tensor([-1.0, 1.0, 2.0, 3.0, 5.0, 8.0]), seed=seed)
    solution = CG(steps=6).solve(MatrixHessian(H), b)
    assert solution.status == "negative_curvature"
    assert bool(torch.isfinite(solution.v).all())
    residual = float((b - H @ solution.v).norm())
    assert solution.residual == pytest.approx(residual, rel=1e-8)


def test_cg_keeps_the_iterate_from_before_the_negative_curvature():
    b = torch.ones(3, dtype=torch.float64)
    hessian = diagonal(3.0, 2.0, -1.0)
    solution = CG(steps=3).solve(hessian, b)
    first = CG(steps=1).solve(hessian, b)
    assert (solution.status, solution.steps) == ("negative_curvature", 1)
    assert torch.equal(solution.v, first.v)
    assert solution.residual == first.residual


@pytest.mark.parametrize("entries", [(1.0, -2.0), (1.0, -1.0), (-1.0, -1.0), (0.0, 0.0)])
def test_cg_that_sees_no_positive_curvature_at_all_stays_at_its_start(entries):
    b = torch.ones(2, dtype=torch.float64)
    cold = CG(steps=5).solve(diagonal(*entries), b)
    assert (cold.status, cold.steps) == ("negative_curvature", 0)
    assert torch.equal(cold.v, torch.zeros_like(b))
    assert cold.residual == pytest.approx(math.sqrt(2), rel=1e-15)


def test_preconditioner_does_not_hide_a_negative_diagonal():
    with pytest.raises(ValueError, match=r"positive.* -1\.0"):
        CG(preconditioner=jacobi).solve(diagonal(2.0, -1.0), torch.ones(2).double())


@pytest.mark.parametrize("seed", range(5))
def test_dense_solves_an_indefinite_system_and_says_so(spd, seed):
    H, b = spd(torch.tensor([-3.0, -1.0, 1.0, 2.0]), seed=seed)
    solution = Dense().solve(MatrixHessian(H), b)
    assert solution.status == "negative_curvature"
    torch.testing.assert_close(solution.v, torch.linalg.solve(H, b), rtol=1e-12, atol=1e-13)
    assert solution.residual <= 1e-13


@pytest.mark.parametrize("n", [1, 2, 7, 30])
def test_dense_is_exact_on_positive_definite_systems(spd, n):
    H, b = spd(torch.linspace(1, 1e3, n), seed=n)
    solution = Dense().solve(MatrixHessian(H), b)
    assert (solution.status, solution.steps) == ("converged", n)
    torch.testing.assert_close(solution.v, torch.linalg.solve(H, b), rtol=1e-11, atol=1e-13)
    assert solution.residual == pytest.approx(float((b - H @ solution.v).norm()), abs=1e-13)


@pytest.mark.parametrize("entries", [(0.0, 0.0), (1.0, 0.0)])
def test_dense_reports_a_singular_system_without_an_exception(entries):
    solution = Dense().solve(diagonal(*entries), torch.ones(2).double())
    assert solution.status == "negative_curvature"
    assert not bool(torch.isfinite(solution.v).all())
