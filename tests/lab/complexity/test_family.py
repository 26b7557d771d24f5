"""The family of problems on which `bilevel complexity` measures."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import bilevel
from bilevel.lab.complexity.family import TAIL, Family, descent_order, make_family
from bilevel.lab.complexity.fits import exact_powers, exact_steps
from bilevel.lab.complexity.oracle import FamilyOracle
from bilevel.lab.complexity.studies import BENT, QUADRATIC
from bilevel.lab.complexity.walls import BentWall, RoundWall, Wall
from bilevel.oracles import AutogradOracle

from ...truth.theory_problems import truth

WALLS = [RoundWall(7.0), BentWall(7.0)]
walls = pytest.mark.parametrize("wall", WALLS, ids=["round", "bent"])


def point(family: Family, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x, y and v away from the start, where y is not y*(x)."""
    generator = torch.Generator().manual_seed(seed)
    x, y = (
        v + 0.3 * torch.randn(len(v), generator=generator, dtype=v.dtype).abs() * v.abs().mean()
        for v in (family.x0, family.y0)
    )
    return x, y, torch.randn(len(y), generator=generator, dtype=y.dtype)


@walls
@pytest.mark.parametrize("rows", [None, torch.tensor([3]), torch.tensor([1, 4, 7])], ids=str)
def test_the_closed_forms_are_those_of_automatic_differentiation(
    wall: Wall, rows: torch.Tensor | None
) -> None:
    family = make_family(wall, seed=1, rows=10)
    own, auto = FamilyOracle(family), AutogradOracle(family.problem())
    x, y, v = point(family)
    one, other = own.linearize(x, y, rows), auto.linearize(x, y, rows)
    pairs = [
        (own.outer(x, y, rows).value(), auto.outer(x, y, rows).value()),
        (own.inner(x, y, rows).value(), auto.inner(x, y, rows).value()),
        *zip(own.outer(x, y, rows).gradient(), auto.outer(x, y, rows).gradient(), strict=True),
        (own.inner(x, y, rows).gradient(), auto.inner(x, y, rows).gradient()),
        (one.gradient(), other.gradient()),
        (one.hvp(v), other.hvp(v)),
        (one.cross(v), other.cross(v)),
        (own.inner(x, y, rows).gradient_x(), auto.inner(x, y, rows).gradient_x()),
        (own.inner(x, y, rows).value_and_gradient()[1], auto.inner(x, y, rows).gradient()),
    ]
    for mine, right in pairs:
        torch.testing.assert_close(mine, right, rtol=1e-12, atol=1e-12)


@walls
def test_the_preconditioner_of_a_diagonal_hessian_is_its_inverse(wall: Wall) -> None:
    family = make_family(wall, seed=1)
    x, y, v = point(family)
    around = FamilyOracle(family).linearize(x, y)
    torch.testing.assert_close(around.inverse()(around.hvp(v)), v)


@walls
@pytest.mark.parametrize("seed", [0, 1])
def test_the_true_gradient_is_that_of_dense_matrices(wall: Wall, seed: int) -> None:
    family = make_family(wall, seed)
    problem = family.problem()
    for share in (1.0, 1.7, -0.4):
        x = family.x0 * share
        right = truth(problem, x).gradient
        found = torch.tensor(family.gradient(*x.tolist()), dtype=x.dtype)
        torch.testing.assert_close(found, right, rtol=1e-9, atol=1e-9)
        assert family.squared_gradient(x) == pytest.approx(float(right @ right), rel=1e-9)


@walls
def test_y_starts_at_its_solution(wall: Wall) -> None:
    family = make_family(wall, seed=2)
    gradient = FamilyOracle(family).inner(family.x0, family.y0).gradient()
    assert float(gradient.abs().max()) < 1e-14


@walls
def test_the_walls_curvature_is_the_slope_of_its_slope_and_the_greatest(wall: Wall) -> None:
    h = 1e-4 * wall.start(1.0)
    assert (wall.slope(h) - wall.slope(-h)) / (2 * h) == pytest.approx(wall.curvature, rel=1e-5)
    places = np.linspace(0, 20 * wall.start(1.0), 400)
    slopes = [wall.slope(float(x)) for x in places]
    assert max(np.diff(slopes) / np.diff(places)) <= wall.curvature * (1 + 1e-6)
    assert min(np.diff(slopes)) >= 0  # it stays steep: no step that is too long ends well


def test_the_curvature_grows_with_the_square_of_kappa_and_with_its_cube_where_g_is_bent() -> None:
    for wall, power in ((RoundWall, 2), (BentWall, 3)):
        assert wall(30.0).curvature / wall(3.0).curvature == pytest.approx(10**power)


def test_the_bent_hessian_turns_at_most_at_the_rate_one_and_stays_above_mu() -> None:
    wall = BentWall(9.0)
    y = np.linspace(-1, 0.8, 20_001)
    bend = wall.inner_curvature(y)
    assert bend is not None
    assert bend.min() >= 0
    assert np.abs(np.diff(bend) / np.diff(y)).max() <= 1
    assert np.abs(np.diff(bend) / np.diff(y)).max() > 0.9


def test_rows_differ_but_their_mean_is_the_problem() -> None:
    family = make_family(RoundWall(5.0), seed=0, rows=50)
    assert family.noise is not None
    oracle, (x, y, v) = FamilyOracle(family), point(family)
    each = [oracle.inner(x, y, torch.tensor([row])).gradient() for row in range(50)]
    torch.testing.assert_close(torch.stack(each).mean(0), oracle.inner(x, y).gradient())
    assert float(torch.stack(each).std(0).min()) > 0
    assert float(family.noise.h.abs().max()) <= 0.3  # a quarter, before they are centred
    crosses = torch.stack([oracle.linearize(x, y, torch.tensor([r])).cross(v) for r in range(50)])
    torch.testing.assert_close(crosses.mean(0), oracle.linearize(x, y).cross(v))


def test_another_seed_draws_other_rows() -> None:
    drawn = [
        FamilyOracle(make_family(RoundWall(5.0), seed, rows=1000)).streams(0).rows("inner", 5)
        for seed in (0, 1)
    ]
    assert drawn[0] is not None
    assert drawn[1] is not None
    assert not torch.equal(*drawn)


def test_the_spectrum_fills_the_interval_from_mu_to_one() -> None:
    family = make_family(RoundWall(16.0), seed=3)
    assert float(family.eigenvalues.min()) == pytest.approx(1 / 16)
    assert float(family.eigenvalues.max()) <= 1


def test_the_order_of_descent_follows_from_the_tail() -> None:
    """y' = βκ² y^(−1−s) is solved by y^(s+2) = (s + 2) βκ² k."""
    s, target = TAIL, 1e-12
    y = target ** (-1 / (2 + 2 * s))
    steps = y ** (s + 2) / (s + 2)
    double = (target / 2) ** (-1 / (2 + 2 * s))
    power = math.log2(double ** (s + 2) / (s + 2) / steps)
    assert power == pytest.approx(descent_order(s))


@pytest.mark.parametrize("study", [BENT, QUADRATIC], ids=lambda study: study.name)
def test_exact_descent_shows_the_powers_that_the_family_was_made_for(study) -> None:
    a = descent_order()
    of_kappa, of_epsilon = exact_powers(replace(study, seeds=2))
    assert of_kappa.mean == pytest.approx(study.steepness + 2 * a - 2, abs=0.03)
    assert of_epsilon.mean == pytest.approx(a, abs=0.02)


def test_exact_descent_counts_the_steps_until_the_last_half_is_stationary() -> None:
    family = make_family(RoundWall(6.0), seed=0)
    (steps,) = exact_steps(family, [1.0])
    x, squares = family.x0.clone(), []
    for _ in range(steps + 1):
        squares.append(family.squared_gradient(x))
        x = x - torch.tensor(family.gradient(*x.tolist()), dtype=x.dtype) / family.smoothness
    n = steps + 1
    assert np.mean(squares[n // 2 :]) <= 1.0 < np.mean(squares[(n - 1) // 2 : n - 1])


def test_a_rotation_of_x_and_y_changes_nothing_so_that_diagonal_matrices_will_do() -> None:
    family = make_family(BentWall(6.0), seed=0)
    generator = torch.Generator().manual_seed(0)
    U, V = (
        torch.linalg.qr(torch.randn(n, n, generator=generator, dtype=torch.float64))[0]
        for n in (len(family.y0), len(family.x0))
    )
    turned = bilevel.Problem(
        outer=lambda x, y: family.outer(V.T @ x, U.T @ y),
        inner=lambda x, y: family.inner(V.T @ x, U.T @ y),
        x0=V @ family.x0,
        y0=U @ family.y0,
    )
    algorithm = bilevel.algorithms.AIDBiO(
        inner_steps=6, inner_lr=1.0, cg_steps=3, outer_lr=2 / family.smoothness
    )
    straight = bilevel.minimize(family.problem(), algorithm, steps=15)
    rotated = bilevel.minimize(turned, algorithm, steps=15)
    torch.testing.assert_close(V.T @ rotated.x, straight.x, rtol=1e-8, atol=1e-10)
    assert rotated.counts == straight.counts
