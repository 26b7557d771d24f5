"""The fixed point and the Neumann series against matrix powers."""

import pytest
import torch
from bilevel.linear import FixedPoint, MatrixHessian, Neumann, SampledNeumann


def exact_series(H, b, terms, lr):
    """η Σ_{i=0..Q} (I − ηH)^i b, by powers of the matrix."""
    step = torch.eye(len(b), dtype=b.dtype) - lr * H
    return lr * sum(torch.linalg.matrix_power(step, i) @ b for i in range(terms + 1))


SYSTEMS = [
    pytest.param(torch.tensor([4.0]), id="1"),
    pytest.param(torch.linspace(1, 3, 2), id="2"),
    pytest.param(torch.logspace(0, 2, 7), id="7"),
    pytest.param(torch.logspace(0, 3, 25), id="25"),
]


@pytest.fixture(params=SYSTEMS)
def system(request, spd):
    """H, b and 1/L."""
    H, b = spd(request.param, seed=len(request.param))
    return H, b, 1 / float(request.param.max())


@pytest.mark.parametrize("terms", [0, 1, 2, 5, 40])
def test_neumann_is_the_sum_of_its_powers(system, terms):
    H, b, lr = system
    solution = Neumann(terms, lr).solve(MatrixHessian(H), b)
    truth = exact_series(H, b, terms, lr)
    torch.testing.assert_close(solution.v, truth, rtol=1e-12, atol=1e-14)
    assert (solution.status, solution.steps) == ("step_limit", terms)


@pytest.mark.parametrize("terms", [0, 1, 4, 30])
def test_neumann_leaves_the_residual_of_its_formula(system, terms):
    H, b, lr = system
    v = Neumann(terms, lr).solve(MatrixHessian(H), b).v
    step = torch.eye(len(b), dtype=b.dtype) - lr * H
    left = torch.linalg.matrix_power(step, terms + 1) @ b
    torch.testing.assert_close(b - H @ v, left, rtol=1e-11, atol=1e-13)


def test_neumann_of_a_scalar_is_a_geometric_sum():
    H, b = torch.tensor([[3.0]]).double(), torch.tensor([2.0]).double()
    for terms in range(8):
        v = Neumann(terms, lr=0.1).solve(MatrixHessian(H), b).v
        assert v.item() == pytest.approx(2 / 3 * (1 - 0.7 ** (terms + 1)), rel=1e-14)


@pytest.mark.parametrize("steps", [1, 2, 3, 17])
def test_n_fixed_point_steps_from_zero_are_neumann_with_n_minus_1_terms(system, steps):
    H, b, lr = system
    fixed = FixedPoint(steps, lr).solve(MatrixHessian(H), b)
    series = Neumann(steps - 1, lr).solve(MatrixHessian(H), b)
    torch.testing.assert_close(fixed.v, series.v, rtol=1e-12, atol=1e-14)
    assert (fixed.status, fixed.steps) == ("step_limit", steps)


@pytest.mark.parametrize("steps", [1, 2, 9])
def test_a_start_at_zero_is_the_same_as_no_start(system, steps):
    H, b, lr = system
    given = FixedPoint(steps, lr).solve(MatrixHessian(H), b, torch.zeros_like(b)).v
    none = FixedPoint(steps, lr).solve(MatrixHessian(H), b).v
    torch.testing.assert_close(given, none, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("steps", [1, 2, 9])
def test_fixed_point_error_is_a_power_of_the_step_matrix(system, steps):
    H, b, lr = system
    v0 = torch.linspace(-1, 1, len(b), dtype=torch.float64)
    truth = torch.linalg.solve(H, b)
    v = FixedPoint(steps, lr).solve(MatrixHessian(H), b, v0).v
    step = torch.eye(len(b), dtype=b.dtype) - lr * H
    left = torch.linalg.matrix_power(step, steps) @ (v0 - truth)
    torch.testing.assert_close(v - truth, left, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("steps", [1, 5, 50])
def test_fixed_point_contracts_by_1_minus_lr_mu_a_step(spd, steps):
    H, b = spd(torch.logspace(0, 1, 9), seed=2)
    truth = torch.linalg.solve(H, b)
    v0 = torch.ones_like(b)
    v = FixedPoint(steps, lr=0.1).solve(MatrixHessian(H), b, v0).v
    assert (v - truth).norm() <= 0.9**steps * (v0 - truth).norm() * (1 + 1e-12)


def test_a_series_has_no_start(system):
    H, b, lr = system
    v0 = torch.ones_like(b)
    for solver in (Neumann(5, lr), SampledNeumann(5, lr)):
        with_start = solver.solve(MatrixHessian(H), b, v0).v
        assert torch.equal(with_start, solver.solve(MatrixHessian(H), b).v)


@pytest.mark.parametrize("terms", [0, 1, 6])
def test_sampled_neumann_on_all_rows_is_neumann_to_the_bit(spd, terms):
    stack = torch.stack([spd(torch.linspace(1, 4, 5), seed=seed)[0] for seed in range(3)])
    b = torch.arange(5, dtype=torch.float64)
    series = Neumann(terms, lr=0.2).solve(MatrixHessian(stack), b)
    sampled = SampledNeumann(terms, lr=0.2, batch=None).solve(MatrixHessian(stack), b)
    assert torch.equal(sampled.v, series.v)
    assert (sampled.status, sampled.steps) == (series.status, series.steps)


def test_too_large_a_step_grows_as_the_formula_says_and_is_not_cut_off(spd):
    H, b = spd(torch.linspace(1, 4, 5), seed=4)
    v = Neumann(30, lr=0.6).solve(MatrixHessian(H), b).v
    torch.testing.assert_close(v, exact_series(H, b, 30, 0.6), rtol=1e-11, atol=0)
    assert v.norm() > 10 * torch.linalg.solve(H, b).norm()
