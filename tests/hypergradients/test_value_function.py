"""The value function's hypergradient: its bias, its v, its shared rows."""

from __future__ import annotations

import pytest
import torch
from bilevel.inner import SGD, GradientDescent

import bilevel
from bilevel import ValueFunction
from bilevel.algorithms import F2SA
from bilevel.hypergradients import Stand
from bilevel.oracles import CountingOracle, make

from ..truth.dense_truth import hypergradient, relative
from ..truth.quadratics import noisy_sum, quadratic
from ..truth.small_problems import softmax

MANY = GradientDescent(600, 0.2)


@pytest.mark.parametrize("name", ["quadratic", "softmax"])
def test_the_error_falls_as_one_over_the_multiplier(name: str) -> None:
    problem = quadratic(4.0, (3, 5)).problem() if name == "quadratic" else softmax()
    x = torch.linspace(-0.5, 0.5, len(problem.x0), dtype=torch.float64)
    truth = hypergradient(problem, x)
    inner = MANY if name == "quadratic" else GradientDescent(200, 2.0)
    errors = []
    for multiplier in (1e2, 1e3, 1e4):
        oracle = make(problem)
        stand = Stand(x, problem.y0)
        found = ValueFunction(multiplier).estimate(oracle, stand, inner, oracle.streams(0))
        errors.append(relative(found.value, truth))
    assert errors[1] < 0.2
    assert 8 < errors[0] / errors[1] < 12
    assert 8 < errors[1] / errors[2] < 12


def test_its_v_is_that_of_implicit_methods() -> None:
    q = quadratic(4.0, (3, 5))
    problem, x = q.problem(), torch.ones(3).double()
    oracle = make(problem)
    found = ValueFunction(1e6).estimate(oracle, Stand(x, problem.y0), MANY, oracle.streams(0))
    assert relative(found.linear.v, q.linear_solution(x)) < 1e-4


def test_it_starts_from_the_v_that_it_is_given() -> None:
    """At the solution for this λ nothing moves, and one step is enough."""
    q = quadratic(4.0, (3, 5))
    problem, x, penalty = q.problem(), torch.ones(3).double(), 50.0
    oracle, method = make(problem), ValueFunction(penalty)
    whole = method.estimate(oracle, Stand(x, problem.y0), MANY, oracle.streams(0))
    stand = Stand(x, whole.inner.y, whole.linear.v)
    again = method.estimate(oracle, stand, GradientDescent(1, 0.2), oracle.streams(0))
    assert relative(again.value, whole.value) < 1e-10


def test_both_copies_see_the_same_rows() -> None:
    """With no outer loss to tell them apart, y and p stay together on batches, so ∇x g cancels."""
    problem = noisy_sum(rows=20).problem()
    flat = bilevel.Problem(
        outer=lambda x, y, batch: 1e-12 * y.square().sum(),
        inner=problem.inner,
        x0=problem.x0,
        y0=problem.y0,
        outer_data=torch.zeros(20, 1).double(),
        inner_data=problem.inner_data,
    )
    oracle = make(flat)
    stand = Stand(flat.x0 + 1, flat.y0)
    found = ValueFunction(10.0, batch=3).estimate(oracle, stand, SGD(5, 0.1, 3), oracle.streams(0))
    assert float(found.value.norm()) < 1e-10


def test_it_asks_for_no_second_derivative() -> None:
    problem = noisy_sum(rows=20).problem()
    algorithm = F2SA(inner_steps=4, batch=3)
    oracle = CountingOracle(make(problem))
    state = algorithm.init(oracle, problem.x0, problem.y0)
    from bilevel.oracles import View

    algorithm.step(View.of(oracle), state)
    counted = {name: oracle.counts[name] for name in ("gc_f", "gc_g", "jv", "hv")}
    assert counted == algorithm.price(0).known == {"gc_f": 10, "gc_g": 10, "jv": 0, "hv": 0}


def test_f2sa_with_a_growing_multiplier_gets_nearer_than_with_a_fixed_one() -> None:
    q = quadratic(1.5, (3, 5))
    settings = {"inner_lr": 0.6, "outer_lr": 0.3, "inner_steps": 8, "batch": None}
    fixed = bilevel.minimize(q.problem(), F2SA(multiplier=10.0, **settings), steps=60)
    grown = bilevel.minimize(
        q.problem(), F2SA(multiplier=lambda k: 10.0 + 2 * k, **settings), steps=60
    )
    errors = [relative(result.x, q.solution()) for result in (fixed, grown)]
    assert errors[1] < errors[0] / 5


def test_an_inner_solver_without_gradient_steps_is_refused() -> None:
    problem = quadratic(4.0, (3, 5)).problem()
    oracle = make(problem)
    with pytest.raises(ValueError, match="NewtonCG is not made of them: use"):
        ValueFunction(10.0).estimate(
            oracle, Stand(problem.x0, problem.y0), bilevel.inner.NewtonCG(), oracle.streams(0)
        )
