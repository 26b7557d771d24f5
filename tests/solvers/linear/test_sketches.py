"""Nyström sketches, the identity, block CG and SGD on v, against dense truths."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from bilevel.linear import CG, SGD, Identity, MatrixHessian, Nystrom
from torch import Tensor

import bilevel
from bilevel.algorithms import NBO
from bilevel.solvers.linear.block_cg import block_cg

from ...truth.dense_truth import relative
from ...truth.quadratics import quadratic


def few_large(size: int = 40) -> tuple[Tensor, Tensor]:
    """Five eigenvalues from 1e3 to 1e5, the others about one."""
    generator = torch.Generator().manual_seed(0)
    basis = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64)).Q
    values = torch.cat([torch.logspace(3, 5, 5), torch.linspace(0.9, 1.1, size - 5)]).double()
    b = torch.randn(size, generator=generator, dtype=torch.float64)
    return basis @ torch.diag(values) @ basis.T, b


def test_a_sketch_of_full_rank_is_the_damped_inverse() -> None:
    H, b = few_large(12)
    v = Nystrom(rank=50, damping=0.3).solve(MatrixHessian(H), b).v
    truth = torch.linalg.solve(H + 0.3 * torch.eye(12).double(), b)
    assert relative(v, truth) < 1e-7


def test_a_tiny_damping_does_not_magnify_rounding() -> None:
    generator = torch.Generator().manual_seed(2)
    basis = torch.linalg.qr(torch.randn(6, 6, generator=generator, dtype=torch.float64)).Q
    H = basis @ torch.diag(torch.linspace(1, 10, 6).double()) @ basis.T
    b = torch.randn(6, generator=generator, dtype=torch.float64)
    v = Nystrom(rank=6, damping=1e-10).solve(MatrixHessian(H), b).v
    assert relative(v, torch.linalg.solve(H, b)) < 1e-9


def test_a_sketch_is_the_formula_of_the_paper() -> None:
    """(Ĥ + ρ)⁻¹ with Ĥ = (HΩ)(Ω'HΩ)⁻¹(HΩ)', for the Ω that was drawn."""
    H, b = few_large()
    hessian = MatrixHessian(H, seed=3)
    omega = hessian.streams.normal(7, 40).T
    near = H @ omega @ torch.linalg.solve(omega.T @ H @ omega, omega.T @ H)
    truth = torch.linalg.solve(near + torch.eye(40).double(), b)
    found = Nystrom(7, 1.0).solve(MatrixHessian(H, seed=3), b).v
    assert relative(found, truth) < 1e-6


def test_as_a_preconditioner_it_takes_the_large_eigenvalues_off_cg() -> None:
    H, b = few_large()
    plain = CG(200, 1e-10).solve(MatrixHessian(H), b)
    sketched = CG(200, 1e-10, Nystrom(10, 1.0)).solve(MatrixHessian(H), b)
    assert sketched.status == "converged"
    assert sketched.steps + 10 < plain.steps or sketched.steps <= 8
    assert relative(sketched.v, torch.linalg.solve(H, b)) < 1e-7


def test_where_the_inner_loss_is_not_convex_a_sketch_harms_nothing() -> None:
    H = torch.diag(torch.tensor([1.0, -1.0, 2.0])).double()
    b = torch.ones(3).double()
    assert torch.equal(Nystrom(3, 0.5).solve(MatrixHessian(H), b).v, 2 * b)
    assert torch.equal(Nystrom(3, 0.5)(MatrixHessian(H))(b), b)


def test_the_identity_asks_for_nothing() -> None:
    assert Identity(0.25).price(warm=True).hv == 0
    with pytest.raises(ValueError, match=r"scale must be a positive number, got -1\.0"):
        Identity(-1.0)


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_block_cg_is_exact_once_its_space_is_everything(columns: int) -> None:
    H, _ = few_large(12)
    H = H / 1e3
    B = torch.randn(12, columns, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    X = block_cg(lambda v: H @ v, B, -(-12 // columns) + 1)
    assert relative(H @ X, B) < 1e-8


def test_each_column_of_a_block_is_at_least_as_good_as_by_itself() -> None:
    """In the norm in which CG is the best of its space."""
    H, _ = few_large()
    B = torch.randn(40, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    truth = torch.linalg.solve(H, B)
    for steps in (1, 2, 4):
        together = block_cg(lambda v: H @ v, B, steps) - truth
        for j in (0, 1):
            alone = CG(steps).solve(MatrixHessian(H), B[:, j]).v - truth[:, j]
            assert together[:, j] @ H @ together[:, j] <= (1 + 1e-9) * (alone @ H @ alone)


@pytest.mark.parametrize("second", ["zero", "same", "twice"])
def test_columns_that_say_nothing_new_do_no_harm(second: str) -> None:
    H, b = few_large(8)
    other = {"zero": 0 * b, "same": b, "twice": 2 * b}[second]
    X = block_cg(lambda v: H @ v, torch.stack([b, other], 1), 20)
    truth = torch.linalg.solve(H, torch.stack([b, other], 1))
    torch.testing.assert_close(X, truth, rtol=1e-6, atol=1e-9)


def test_nbo_takes_newton_s_step_and_the_hypergradient_of_where_it_stood() -> None:
    q = quadratic(3.0)
    algorithm = NBO(cg_steps=5, outer_lr=0.3)
    result = bilevel.minimize(q.problem(), algorithm, steps=1)
    assert relative(result.state.y, q.inner_solution(torch.zeros(3).double())) < 1e-9
    many = bilevel.minimize(q.problem(), algorithm, steps=40, evaluate_every=40)
    assert relative(many.x, q.solution()) < 1e-6


def test_sgd_on_v_has_the_step_on_all_rows_as_its_mean() -> None:
    generator = torch.Generator().manual_seed(0)
    stack = torch.randn(6, 3, 3, generator=generator, dtype=torch.float64)
    b, v0 = torch.randn(2, 3, generator=generator, dtype=torch.float64)

    class Told(MatrixHessian):
        row = 0

        def sampled_product(self, v: Tensor, batch: Any) -> Tensor:
            return stack[self.row] @ v

    hessian, found = Told(stack), []
    for hessian.row in range(6):
        found.append(SGD(1, 0.2, 1).solve(hessian, b, v0).v)
    truth = v0 - 0.2 * (stack.mean(0) @ v0 - b)
    assert relative(torch.stack(found).mean(0), truth) < 1e-12


def test_amigo_has_none_of_the_bias_of_a_short_series() -> None:
    q = quadratic(3.0)
    common = {"inner_steps": 1, "inner_lr": 0.4, "outer_lr": 0.05, "batch": None}
    amigo = bilevel.algorithms.AmIGO(**common, linear_steps=1)
    series = bilevel.algorithms.StocBiO(**common, neumann_terms=1, neumann_lr=0.4)
    errors = [
        relative(bilevel.minimize(q.problem(), a, steps=250, evaluate_every=250).x, q.solution())
        for a in (amigo, series)
    ]
    assert errors[0] < 1e-4
    assert errors[1] > 1e-2
