"""Gradient descent with a measured step size: 1/L, so that it never diverges."""

from __future__ import annotations

import math

import pytest
import torch
from bilevel.inner import SGD, GradientDescent, Measured
from bilevel.linear import MatrixHessian, SampledNeumann

import bilevel
from bilevel.algorithms import MAML, AIDBiO, ITDBiO, StocBiO
from bilevel.hypergradients import AID, Stand
from bilevel.numerics.lanczos import extreme_eigenvalues
from bilevel.oracles import CountingOracle, View, make

from ...truth.dense_truth import relative
from ...truth.quadratics import noisy_sum, quadratic
from ...truth.small_problems import softmax


def measured(problem: bilevel.Problem, products: int = 8) -> float:
    oracle = make(problem)
    solver = GradientDescent(3, Measured(products=products))
    plan = solver.plan(oracle, problem.x0, problem.y0, oracle.streams(0))
    assert len(plan) == 3
    return plan[0].lr


@pytest.mark.parametrize("kappa", [1.0, 4.0, 300.0])
def test_the_step_is_one_over_the_largest_eigenvalue(kappa):
    assert measured(quadratic(kappa, (3, 5)).problem()) == pytest.approx(1 / kappa, rel=1e-9)


def test_few_products_still_keep_clear_of_divergence():
    """On 60 numbers, 8 products find L from below, and what is missing is within their error."""
    lr = measured(quadratic(300.0, (3, 60)).problem())
    assert 0.5 / 300 < lr < 1.1 / 300


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_it_converges_whatever_the_scale_of_the_loss(scale):
    q = quadratic(4.0, (2, 5))
    whole = q.problem()
    problem = bilevel.Problem(
        whole.outer,
        lambda x, y: scale * whole.inner(x, y),
        torch.zeros(2).double(),
        torch.zeros(5).double(),
    )
    x = torch.ones(2).double()
    found = bilevel.solve_inner(problem, x, GradientDescent(200, Measured())).y
    assert relative(found, q.inner_solution(x)) < 1e-9


def test_itd_through_measured_steps_is_itd_through_steps_of_that_size():
    problem = softmax()
    lr = measured(problem)
    x, y = (
        s.unflatten(v)
        for s, v in ((problem.x_structure, problem.x0), (problem.y_structure, problem.y0))
    )
    auto, fixed = (
        bilevel.hypergradient(problem, x, y, bilevel.ITD(), inner).value
        for inner in (GradientDescent(7, Measured()), GradientDescent(7, lr))
    )
    assert torch.equal(auto, fixed)


@pytest.mark.parametrize("algorithm", [AIDBiO, ITDBiO, MAML])
def test_an_algorithm_takes_it_in_place_of_a_number_and_refuses_words(algorithm):
    made = algorithm(inner_lr=Measured(), inner_steps=4)
    assert made.parts(0).inner == GradientDescent(4, Measured())
    for word in ("fast", "auto"):
        with pytest.raises(ValueError, match=f"lr must be a positive number, got '{word}'"):
            algorithm(inner_lr=word, inner_steps=4)


@pytest.mark.parametrize("algorithm", [AIDBiO, ITDBiO])
def test_it_is_what_an_algorithm_does_when_no_step_is_given(algorithm):
    assert algorithm(inner_steps=4).parts(0).inner == GradientDescent(4, Measured())


@pytest.mark.parametrize("algorithm", [AIDBiO, ITDBiO, MAML])
def test_the_products_are_counted_and_the_stated_cost_leaves_them_out(algorithm):
    problem = quadratic(4.0, (3, 30)).problem()
    steps = {"inner_steps": 4, **({"cg_steps": 5} if algorithm is AIDBiO else {})}
    costs = {}
    for lr in (Measured(), 0.1):
        oracle = CountingOracle(make(problem))
        other = algorithm(inner_lr=lr, **steps)
        other.step(View.of(oracle), other.init(oracle, problem.x0, problem.y0))
        costs[lr] = oracle.counts
    assert costs[Measured()].hv == costs[0.1].hv + Measured().products
    known = algorithm(inner_lr=Measured(), **steps).price(0).known
    assert known == {"gc_f": 2, "gc_g": 4, "jv": costs[Measured()].jv}


def test_a_loss_without_curvature_gets_a_step_of_one():
    problem = bilevel.Problem(
        outer=lambda x, y: (x * y).sum(),
        inner=lambda x, y: (x * y).sum(),
        x0=torch.ones(2).double(),
        y0=torch.zeros(2).double(),
    )
    assert measured(problem) == 1.0


def test_a_point_that_is_not_finite_gives_a_spectrum_that_is_not_and_no_crash():
    found = extreme_eigenvalues(lambda v: v * float("nan"), torch.zeros(4).double())
    assert math.isnan(found.largest)
    problem = quadratic(4.0, (2, 5)).problem()
    oracle, lost = make(problem), torch.full((5,), float("nan")).double()
    solution = GradientDescent(3, Measured()).solve(oracle, problem.x0, lost, oracle.streams(0))
    assert solution.y.isnan().all()


def bent(least: float, largest: float = 0.0) -> bilevel.Problem:
    """g is a quadratic of two numbers with these curvatures, negative ones too."""
    curvatures = torch.tensor([least, largest]).double()
    return bilevel.Problem(
        outer=lambda x, y: (y**2).sum(),
        inner=lambda x, y: 0.5 * (curvatures * (y - x).square()).sum(),
        x0=torch.ones(2).double(),
        y0=torch.zeros(2).double(),
    )


@pytest.mark.parametrize(
    ("least", "largest", "L"),
    [(-8.0, -2.0, 8.0), (-50.0, 2.0, 50.0), (-2.0, 50.0, 50.0), (-3.0, 0.0, 3.0)],
)
def test_where_the_loss_bends_down_its_steepest_bend_sets_the_step(least, largest, L):
    """Not 1, which left a double well for infinity."""
    assert measured(bent(least, largest)) == pytest.approx(1 / L, rel=1e-9)


def test_a_double_well_is_not_left_for_infinity():
    problem = bilevel.Problem(
        outer=lambda x, y: (y - 1).square().sum() + 0 * x.sum(),
        inner=lambda x, y: (50 * (y**4 / 4 - y**2 / 2) + 0.1 * x * y).sum(),
        x0=torch.zeros(1).double(),
        y0=torch.full((1,), 0.05).double(),
    )
    result = bilevel.minimize(problem, ITDBiO(), steps=20)
    assert float(result.y.abs().max()) < 2


@pytest.mark.parametrize("margin", [1.0, 1.5, 4.0])
def test_the_margin_makes_the_step_so_much_smaller(margin):
    H = torch.diag(torch.tensor([1.0, 5.0]).double())
    assert Measured(margin).of(lambda v: H @ v, H[0]) == pytest.approx(1 / (margin * 5), rel=1e-9)
    assert MatrixHessian(H).rate(Measured(margin)) == pytest.approx(1 / (margin * 5), rel=1e-9)


def test_a_batch_is_what_is_measured():
    q = noisy_sum(rows=40)
    problem, safe = q.problem(), Measured(batch=3)
    oracle = make(problem, 7)
    rows = oracle.streams(2).rows("curvature", 3)
    L = float(torch.linalg.eigvalsh(q.A[rows].mean(0))[-1])
    found = safe.at(oracle, problem.x0, problem.y0, oracle.streams(2))
    assert found == pytest.approx(1 / L, rel=1e-9)


@pytest.mark.parametrize("batch", [None, 4], ids=["all rows", "batches"])
def test_solvers_of_one_outer_step_share_one_measurement(batch):
    """And those of the next step measure anew."""
    problem, safe, Q = noisy_sum(rows=40, sizes=(3, 30)).problem(), Measured(1.5), 5
    oracle = CountingOracle(make(problem))
    inner, series = SGD(3, safe, batch), SampledNeumann(Q, safe, batch)
    for k in (0, 1):
        before, streams = oracle.counts, oracle.streams(k)
        AID(series).estimate(oracle, Stand(problem.x0, problem.y0), inner, streams)
        assert (oracle.counts - before).hv == safe.products + Q


@pytest.mark.parametrize("rows", [40, 700], ids=["fewer rows than a batch", "batches"])
def test_stocbio_with_no_number_given_measures_once_a_step(rows):
    problem = noisy_sum(rows=rows, sizes=(3, 30)).problem()
    algorithm, oracle = StocBiO(), CountingOracle(make(problem))
    state = algorithm.init(oracle, problem.x0, problem.y0)
    for _ in range(2):
        before = oracle.counts
        state, _ = algorithm.step(View.of(oracle, state.step), state)
        assert (oracle.counts - before).hv == Measured().products + algorithm.neumann_terms


def test_two_different_measurements_are_not_mixed_up():
    H = quadratic(4.0, (3, 5)).problem()
    oracle = make(H)
    streams = oracle.streams(0)
    one, two = (Measured(m).at(oracle, H.x0, H.y0, streams) for m in (1.0, 2.0))
    assert one == pytest.approx(2 * two, rel=1e-12)
