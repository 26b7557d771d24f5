"""CG that ends by the energy norm, and what it learns of H."""

from __future__ import annotations

import pytest
import torch
from bilevel.linear import MatrixHessian, SettledCG

from bilevel.solvers.linear.curvature import Curvature


def spd(size: int, kappa: float, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    Q = torch.linalg.qr(torch.randn(size, size, generator=generator).double()).Q
    return (Q * torch.logspace(0, -torch.tensor(kappa).log10().item(), size).double()) @ Q.T


def energy(H: torch.Tensor, v: torch.Tensor) -> float:
    return float(v @ H @ v) ** 0.5


@pytest.mark.parametrize("drop", [0.1, 0.01, 1e-6])
@pytest.mark.parametrize("kappa", [10.0, 1e3, 1e6])
@pytest.mark.parametrize("seed", range(3))
def test_the_error_that_is_left_is_the_part_that_was_asked_for(kappa, drop, seed):
    H, b = spd(40, kappa, seed), torch.linspace(-1, 2, 40).double()
    start = torch.ones(40).double()
    right = torch.linalg.solve(H, b)
    found = SettledCG(drop, 5000, None).solve(MatrixHessian(H), b, start)
    assert found.status == "converged"
    assert energy(H, found.v - right) <= drop * energy(H, start - right)


def test_a_zero_right_hand_side_and_one_that_is_lost_end_at_once():
    H = MatrixHessian(spd(3, 10.0))
    zero = SettledCG().solve(H, torch.zeros(3).double(), torch.ones(3).double())
    assert torch.equal(zero.v, torch.zeros(3).double())
    assert (zero.steps, zero.status) == (0, "converged")
    lost = SettledCG().solve(H, torch.full((3,), float("nan")).double())
    assert bool(lost.v.isnan().all())
    assert lost.status == "not_converged"


def test_it_says_how_it_ended():
    H, b = spd(30, 1e4), torch.ones(30).double()
    assert SettledCG(1e-9, 3, None).solve(MatrixHessian(H), b).status == "not_converged"
    bent = H - 0.5 * torch.eye(30).double()
    assert SettledCG(1e-9, 99, None).solve(MatrixHessian(bent), b).status == "negative_curvature"
    learned = SettledCG(1e-9, 99, Curvature()).solve(MatrixHessian(bent), b)
    assert learned.status == "negative_curvature"


def test_h_is_built_once_cg_was_slow_and_then_serves():
    H, b = MatrixHessian(spd(30, 1e6)), torch.linspace(-1, 2, 30).double()
    curvature = Curvature()
    slow = SettledCG(1e-10, 1000, curvature).solve(H, b)
    again = Curvature(curvature.memory)
    fast = SettledCG(1e-10, 1000, again).solve(H, b)
    assert slow.steps > 30
    assert fast.steps <= 4
    assert "factor" not in curvature.memory
    assert "factor" in again.memory
    assert set(Curvature(again.memory).memory) == {"factor", "flat", "slow"}


def test_a_huge_penalty_on_one_entry_makes_no_other_seem_flat():
    """Curvatures 1e24 and 1: by the plain ratio the second would be none."""
    H = torch.diag(torch.tensor([1e24, 1.0, 2.0]).double())
    H[1, 2] = H[2, 1] = 0.5
    b = torch.tensor([1.0, 1.0, -1.0]).double()
    found = SettledCG(1e-12, 1000, Curvature()).solve(MatrixHessian(H), b)
    assert found.status == "converged"
    right = torch.linalg.solve(H[1:, 1:], b[1:])
    assert float((found.v[1:] - right).norm()) <= 1e-12


@pytest.mark.parametrize("inside", [True, False])
def test_a_singular_system_is_told_unless_the_right_side_is_in_its_range(inside):
    H = spd(8, 10.0)
    values, vectors = torch.linalg.eigh(H)
    values[0] = 0.0
    H = (vectors * values) @ vectors.T
    b = torch.linspace(-1, 2, 8).double()
    b = b - inside * vectors[:, 0] * (vectors[:, 0] @ b)
    curvature = Curvature({"slow": 100.0})
    found = SettledCG(1e-9, 200, curvature).solve(MatrixHessian(H), b)
    assert found.status == ("converged" if inside else "negative_curvature")
    assert curvature.is_unsolvable(b) is not inside


@pytest.mark.parametrize("start", [None, 1.0, 1e25])  # the last along the flat direction
def test_what_rounding_leaves_along_flat_directions_is_not_divided_by_rounding(start):
    """The right side of 1e-9 has an error of 1e-17 outside the range of H."""
    values, U = torch.linalg.eigh(spd(8, 10.0))
    values[0] = 0
    H = (U * values) @ U.T
    b = 1e-9 * H @ torch.linspace(-1, 2, 8).double() + 1e-17 * U[:, 0]
    v0 = None if start is None else start * 1e-9 * (H @ torch.ones(8).double() + U[:, 0])
    curvature = Curvature()
    assert curvature.learn(MatrixHessian(H), b)
    found = SettledCG(1e-9, 1000, curvature).solve(MatrixHessian(H), b, v0)
    right = torch.linalg.pinv(H, rtol=1e-10) @ b
    assert found.status == "converged"
    assert energy(H, found.v - right) <= 2e-8 * energy(H, right)
    assert float(found.v.norm()) <= 2 * float(right.norm())  # what is flat is as it was


def test_a_direction_that_was_flat_elsewhere_is_learned_again():
    values, U = torch.linalg.eigh(spd(8, 10.0))
    flat, curved = (
        (U * torch.cat([torch.full((1,), least).double(), values[1:]])) @ U.T for least in (0, 1e-3)
    )
    b = torch.linspace(-1, 2, 8).double()
    before = Curvature()
    assert before.learn(MatrixHessian(flat), b)
    again = Curvature(before.memory)
    found = SettledCG(1e-9, 1000, again).solve(MatrixHessian(curved), b)
    assert found.status == "converged"
    assert torch.allclose(found.v, torch.linalg.solve(curved, b), rtol=1e-8)
    assert not again.knows_flats


def test_in_single_precision_what_rounding_makes_of_a_zero_is_flat():
    values, U = torch.linalg.eigh(spd(8, 10.0))
    values[0] = 0
    H = ((U * values) @ U.T).float()
    curvature = Curvature()
    assert curvature.learn(MatrixHessian(H), torch.ones(8))
    assert curvature.knows_flats


@pytest.mark.parametrize("kappa", [None, 10.0, 1e5])  # None: no ridge
def test_a_large_system_without_a_solution_is_told_before_its_steps_grow_for_ever(kappa):
    generator = torch.Generator().manual_seed(7)
    rows = torch.randn(20, 1100, generator=generator).double()
    b = torch.randn(1100, generator=generator).double()
    H = rows.T @ rows
    if kappa:
        H += 1300 / kappa * torch.eye(1100).double()
    found = SettledCG(0.01, preconditioner=None).solve(MatrixHessian(H), b)
    assert found.status == ("converged" if kappa else "negative_curvature")
    if kappa:
        right = torch.linalg.solve(H, b)
        assert energy(H, found.v - right) <= 0.01 * energy(H, right)
    else:
        assert bool((found.v == 0).all())
