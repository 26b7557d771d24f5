"""Conjugate gradients against dense truths."""

import math

import pytest
import torch
from bilevel.linear import CG, MatrixHessian, from_oracle, jacobi


class CountingHessian(MatrixHessian):
    """Says how many products were asked for."""

    def __init__(self, matrix):
        super().__init__(matrix)
        self.products = 0

    def product(self, v):
        self.products += 1
        return super().product(v)


def spectrum(n, condition):
    return torch.logspace(0, math.log10(condition), n, dtype=torch.float64)


def krylov_solution(H, b, N):
    """The best v of span{b, Hb, ..., H^(N−1) b} in the H-norm: what N steps of CG must give."""
    basis = b[:, None] / b.norm()
    for _ in range(N - 1):
        new = H @ basis[:, -1]
        for _ in range(2):  # twice is enough to be orthogonal to rounding
            new = new - basis @ (basis.T @ new)
        basis = torch.cat([basis, new[:, None] / new.norm()], dim=1)
    return basis @ torch.linalg.solve(basis.T @ H @ basis, basis.T @ b)


@pytest.mark.parametrize("preconditioner", [None, jacobi], ids=["plain", "jacobi"])
@pytest.mark.parametrize("n", [1, 2, 5, 30])
@pytest.mark.parametrize("condition", [1.5, 1e2, 1e4])
def test_cg_solves_random_spd_systems(spd, n, condition, preconditioner):
    H, b = spd(spectrum(n, condition), seed=n)
    solution = CG(steps=20 * n, tol=1e-13, preconditioner=preconditioner).solve(MatrixHessian(H), b)
    truth = torch.linalg.solve(H, b)
    assert solution.status == "converged"
    # A residual of 1e-13 bounds the error by κ times as much, relatively.
    assert (solution.v - truth).norm() <= 2e-13 * condition * truth.norm()


@pytest.mark.parametrize("n", [1, 2, 3, 8, 15])
def test_cg_solves_spd_system_exactly_in_n_steps(spd, n):
    H, b = spd(spectrum(n, 5), seed=n)  # well conditioned: rounding must not add steps
    solution = CG(steps=n, tol=1e-11).solve(MatrixHessian(H), b)
    assert solution.status == "converged"
    torch.testing.assert_close(solution.v, torch.linalg.solve(H, b), rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("distinct", [1, 2, 3, 4])
def test_cg_needs_as_many_steps_as_there_are_distinct_eigenvalues(spd, distinct):
    H, b = spd(torch.arange(1, distinct + 1).repeat(6), seed=distinct)
    solution = CG(steps=50, tol=1e-12).solve(MatrixHessian(H), b)
    assert (solution.status, solution.steps) == ("converged", distinct)
    short = CG(steps=distinct - 1, tol=1e-12).solve(MatrixHessian(H), b)
    assert short.status == "not_converged"


@pytest.mark.parametrize("N", range(1, 9))
def test_cg_returns_its_last_iterate_the_best_of_the_krylov_space(spd, N):
    H, b = spd(spectrum(12, 50), seed=3)
    v = CG(steps=N).solve(MatrixHessian(H), b).v
    torch.testing.assert_close(v, krylov_solution(H, b, N), rtol=1e-11, atol=1e-13)


def test_one_step_solves_a_system_of_one_number_and_is_not_lost():
    H, b = torch.tensor([[4.0]]).double(), torch.tensor([3.0]).double()
    solution = CG(steps=1).solve(MatrixHessian(H), b)
    assert (solution.v.item(), solution.steps) == (0.75, 1)


@pytest.mark.parametrize("N", [0, 1, 2, 5, 9])
def test_warm_started_cg_is_cg_on_the_remaining_system(spd, N):
    H, b = spd(spectrum(12, 50), seed=4)
    v0 = torch.linspace(-1, 1, 12, dtype=torch.float64)
    warm = CG(steps=N).solve(MatrixHessian(H), b, v0)
    remaining = CG(steps=N).solve(MatrixHessian(H), b - H @ v0)
    torch.testing.assert_close(warm.v, v0 + remaining.v, rtol=1e-12, atol=1e-13)
    assert warm.residual == pytest.approx(remaining.residual, rel=1e-12)


@pytest.mark.parametrize("preconditioner", [None, jacobi], ids=["plain", "jacobi"])
@pytest.mark.parametrize("N", [0, 1, 3, 7])
@pytest.mark.parametrize("warm", [False, True], ids=["from zero", "from v0"])
def test_reported_residual_is_that_of_the_returned_v(spd, preconditioner, N, warm):
    H, b = spd(spectrum(12, 50), seed=5)
    v0 = torch.ones_like(b) if warm else None
    solution = CG(steps=N, preconditioner=preconditioner).solve(MatrixHessian(H), b, v0)
    assert solution.residual == pytest.approx(float((b - H @ solution.v).norm()), rel=1e-11)


@pytest.mark.parametrize("condition", [2.0, 30.0, 1e3])
def test_cg_obeys_its_convergence_bound(spd, condition):
    H, b = spd(spectrum(40, condition), seed=6)
    truth = torch.linalg.solve(H, b)

    def error(v):
        return math.sqrt((v - truth) @ H @ (v - truth))

    v0 = torch.ones_like(b)
    rate = (math.sqrt(condition) - 1) / (math.sqrt(condition) + 1)
    for N in range(0, 60, 3):
        v = CG(steps=N).solve(MatrixHessian(H), b, v0).v
        assert error(v) <= 2 * rate**N * error(v0) + 1e-12 * error(v0), N


@pytest.mark.parametrize("tol", [1e-1, 1e-4, 1e-9])
def test_cg_stops_at_the_first_iterate_within_its_tolerance(spd, tol):
    H, b = spd(spectrum(30, 1e2), seed=7)
    solution = CG(steps=200, tol=tol).solve(MatrixHessian(H), b)
    assert solution.status == "converged"
    assert (b - H @ solution.v).norm() <= tol * b.norm() * (1 + 1e-6)
    shorter = CG(steps=solution.steps - 1, tol=tol).solve(MatrixHessian(H), b)
    assert shorter.status == "not_converged"
    assert (b - H @ shorter.v).norm() > tol * b.norm()


def test_cg_without_tolerance_ends_with_step_limit_and_with_one_as_not_converged(spd):
    H, b = spd(spectrum(30, 1e3), seed=8)
    free = CG(steps=4).solve(MatrixHessian(H), b)
    asked = CG(steps=4, tol=1e-6).solve(MatrixHessian(H), b)
    assert (free.status, asked.status) == ("step_limit", "not_converged")
    assert free.steps == asked.steps == 4
    assert torch.equal(free.v, asked.v)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cg_without_tolerance_still_ends_where_rounding_does(spd, dtype):
    H, b = (part.to(dtype) for part in spd(spectrum(10, 10), seed=9))
    solution = CG(steps=10_000).solve(MatrixHessian(H), b)
    assert solution.status == "converged"
    assert solution.steps < 40


@pytest.mark.parametrize("warm", [False, True], ids=["from zero", "from v0"])
def test_zero_right_hand_side_is_answered_at_once_without_a_product(spd, warm):
    H, b = spd(spectrum(8, 10), seed=10)
    hessian = CountingHessian(H)
    solution = CG(steps=50, tol=1e-8).solve(hessian, torch.zeros_like(b), b if warm else None)
    assert torch.equal(solution.v, torch.zeros_like(b))
    assert (solution.status, solution.steps, solution.residual) == ("converged", 0, 0.0)
    assert hessian.products == 0


def test_warm_start_at_the_solution_takes_no_step_and_one_product(spd):
    H, b = spd(spectrum(8, 10), seed=11)
    truth = torch.linalg.solve(H, b)
    hessian = CountingHessian(H)
    solution = CG(steps=50, tol=1e-12).solve(hessian, b, truth)
    assert torch.equal(solution.v, truth)
    assert (solution.status, solution.steps, hessian.products) == ("converged", 0, 1)


def test_exact_start_without_tolerance_is_no_zero_over_zero():
    H, v0 = torch.diag(torch.tensor([2.0, 4.0])).double(), torch.tensor([0.5, 0.25]).double()
    solution = CG(steps=5).solve(MatrixHessian(H), torch.ones(2).double(), v0)
    assert torch.equal(solution.v, v0)
    assert (solution.status, solution.steps, solution.residual) == ("converged", 0, 0.0)


@pytest.mark.parametrize("lost", [float("nan"), float("inf")])
@pytest.mark.parametrize("preconditioner", [None, jacobi], ids=["plain", "jacobi"])
def test_right_hand_side_that_is_not_finite_is_passed_on_and_never_called_converged(
    lost, preconditioner
):
    hessian = CountingHessian(torch.full((2, 2), float("nan")))
    solution = CG(steps=5, preconditioner=preconditioner).solve(hessian, torch.tensor([1.0, lost]))
    assert solution.status == "not_converged"
    assert not bool(torch.isfinite(solution.v).any())
    assert hessian.products == 0


@pytest.mark.parametrize("N", [0, 1, 6])
def test_n_steps_cost_n_products_and_one_more_from_a_warm_start(spd, N):
    H, b = spd(spectrum(20, 1e3), seed=12)
    cold, warm = CountingHessian(H), CountingHessian(H)
    CG(steps=N).solve(cold, b)
    CG(steps=N).solve(warm, b, torch.ones_like(b))
    assert (cold.products, warm.products) == (N, N + 1)


@pytest.mark.parametrize("N", [1, 2, 5])
@pytest.mark.parametrize("warm", [False, True], ids=["from zero", "from v0"])
def test_preconditioned_cg_is_plain_cg_on_the_scaled_system(spd, N, warm):
    H, b = spd(spectrum(12, 10), seed=13)
    diagonal = torch.linspace(1, 4, 12, dtype=torch.float64)
    v0 = torch.ones_like(b) if warm else None
    root = diagonal.sqrt()
    scaled = CG(steps=N).solve(
        MatrixHessian(H / root[:, None] / root), b / root, root * v0 if warm else None
    )
    found = CG(steps=N, preconditioner=diagonal).solve(MatrixHessian(H), b, v0)
    torch.testing.assert_close(found.v, scaled.v / root, rtol=1e-11, atol=1e-13)


def test_jacobi_is_the_preconditioner_of_the_hessians_own_diagonal(spd):
    H, b = spd(spectrum(12, 50), seed=14)
    by_name = CG(steps=5, preconditioner=jacobi).solve(MatrixHessian(H), b)
    by_tensor = CG(steps=5, preconditioner=H.diagonal().clone()).solve(MatrixHessian(H), b)
    assert torch.equal(by_name.v, by_tensor.v)
    assert not torch.equal(by_name.v, CG(steps=5).solve(MatrixHessian(H), b).v)


def test_jacobi_solves_a_diagonal_system_in_one_step():
    H = torch.diag(spectrum(10, 1e8))
    b = torch.ones(10, dtype=torch.float64)
    solution = CG(steps=1, tol=1e-14, preconditioner=jacobi).solve(MatrixHessian(H), b)
    assert solution.status == "converged"
    torch.testing.assert_close(solution.v, 1 / H.diagonal(), rtol=1e-14, atol=0)


def test_approximate_inverse_that_is_exact_solves_in_one_step(spd):
    H, b = spd(spectrum(8, 1e3), seed=16)
    inverse = torch.linalg.inv(H)
    cg = CG(steps=1, tol=1e-11, preconditioner=lambda hessian: lambda r: inverse @ r)
    assert cg.solve(MatrixHessian(H), b).status == "converged"


def test_what_the_oracle_of_a_matrix_offers_is_its_diagonal(spd):
    H, b = spd(spectrum(12, 50), seed=14)
    offered = CG(steps=5, preconditioner=from_oracle).solve(MatrixHessian(H), b)
    by_diagonal = CG(steps=5, preconditioner=jacobi).solve(MatrixHessian(H), b)
    torch.testing.assert_close(offered.v, by_diagonal.v, rtol=1e-12, atol=1e-14)


def test_preconditioner_is_not_written_to(spd):
    H, b = spd(spectrum(5, 50), seed=15)
    diagonal = torch.arange(1, 6, dtype=torch.float64)
    CG(steps=5, preconditioner=diagonal).solve(MatrixHessian(H), b)
    assert torch.equal(diagonal, torch.arange(1, 6, dtype=torch.float64))


@pytest.mark.parametrize(
    ("diagonal", "message"),
    [
        ([1.0, 0.0, 2.0], "positive.* 0.0"),
        ([1.0, -3.0, 2.0], "positive.* -3.0"),
        ([1.0, float("nan"), 2.0], "positive.* nan"),
        ([1.0, 2.0], r"shape \(2,\).*\(3,\)"),
        ([[1.0, 2.0, 3.0]], r"shape \(1, 3\).*\(3,\)"),
    ],
)
@pytest.mark.parametrize("kind", ["tensor", "function"])
def test_preconditioner_that_is_not_positive_or_of_another_shape_raises(diagonal, message, kind):
    tensor = torch.tensor(diagonal)
    cg = CG(preconditioner=tensor if kind == "tensor" else lambda hessian: tensor)
    with pytest.raises(ValueError, match=message):
        cg.solve(MatrixHessian(torch.eye(3)), torch.ones(3))


def test_preconditioner_that_gives_neither_a_diagonal_nor_a_function_raises():
    with pytest.raises(TypeError, match=r"it gave 3\.0"):
        CG(preconditioner=lambda hessian: 3.0).solve(MatrixHessian(torch.eye(3)), torch.ones(3))
