"""Gradient descent with a measured step size: 1/L, so that it never diverges."""

from __future__ import annotations

import math

import pytest
import torch
from bilevel.inner import GradientDescent, SafeDescent

import bilevel
from bilevel.algorithms import MAML, AIDBiO, ITDBiO
from bilevel.numerics.lanczos import extreme_eigenvalues
from bilevel.oracles import CountingOracle, make_oracle

from ...truth.dense_truth import relative
from ...truth.quadratics import quadratic
from ...truth.small_problems import softmax


def measured(problem: bilevel.Problem, products: int = 8) -> float:
    oracle = make_oracle(problem)
    plan = SafeDescent(3, products).plan(oracle, problem.x0, problem.y0, oracle.streams(0))
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
    found = bilevel.solve_inner(problem, x, SafeDescent(200)).y
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
        for inner in (SafeDescent(7), GradientDescent(7, lr))
    )
    assert torch.equal(auto, fixed)


@pytest.mark.parametrize("algorithm", [AIDBiO, ITDBiO, MAML])
def test_auto_asks_for_it_and_any_other_word_is_refused(algorithm):
    made = algorithm(inner_lr="auto", inner_steps=4)
    assert made.inner_solver(0) == SafeDescent(4)
    with pytest.raises(ValueError, match="lr must be a positive number, got 'fast'"):
        algorithm(inner_lr="fast", inner_steps=4)


@pytest.mark.parametrize("algorithm", [AIDBiO, ITDBiO, MAML])
def test_the_products_are_counted_and_the_stated_cost_leaves_them_out(algorithm):
    problem = quadratic(4.0, (3, 30)).problem()
    steps = {"inner_steps": 4, **({"cg_steps": 5} if algorithm is AIDBiO else {})}
    made = algorithm(inner_lr="auto", **steps)
    costs = {}
    for lr in ("auto", 0.1):
        oracle = CountingOracle(make_oracle(problem))
        other = algorithm(inner_lr=lr, **steps)
        other.step(oracle, other.init(oracle, problem.x0, problem.y0))
        costs[lr] = oracle.counts
    assert costs["auto"].hv == costs[0.1].hv + SafeDescent(1).products
    assert made.cost(0) == {"gc_f": 2, "gc_g": 4, "jv": costs["auto"].jv}


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
    oracle, lost = make_oracle(problem), torch.full((5,), float("nan")).double()
    solution = SafeDescent(3).solve(oracle, problem.x0, lost, oracle.streams(0))
    assert solution.y.isnan().all()
