"""Hypergradients by differences, along random directions, and from what L-BFGS has learned."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from bilevel.inner import LBFGS, SGD, GradientDescent, NewtonCG
from bilevel.linear import CG, Identity
from torch import Tensor, nn

import bilevel
from bilevel import AID, ITD
from bilevel.errors import UserError
from bilevel.hypergradients import (
    SHINE,
    EvolutionStrategy,
    FiniteDifferences,
    Forward,
    Stand,
)
from bilevel.oracles import CountingOracle, make

from ..truth.dense_truth import hypergradient, relative, unrolled
from ..truth.quadratics import noisy_sum, quadratic
from ..truth.small_problems import network, softmax

Q = quadratic(3.0)
X = torch.linspace(-0.5, 0.5, 3, dtype=torch.float64)


def estimate(
    method: Any, problem: bilevel.Problem, x: Tensor, inner: Any, step: int = 0, v: Any = None
) -> Any:
    oracle = make(problem)
    return method.estimate(oracle, Stand(x, problem.y0, v), inner, oracle.streams(step))


def assert_priced(method: Any, inner: Any, x_size: int = 3) -> None:
    """Counted is what is stated."""
    problem = noisy_sum(rows=8).problem()
    oracle = CountingOracle(make(problem))
    method.estimate(oracle, Stand(problem.x0, problem.y0), inner, oracle.streams(0))
    known = method.price(inner, warm=False).known
    assert {name: oracle.counts[name] for name in known} == known
    assert known


# Differences of gradients


@pytest.mark.parametrize("method", [AID(CG(8)), ITD()], ids=["aid", "itd"])
@pytest.mark.parametrize("make_problem", [softmax, network])
def test_differences_give_what_second_derivatives_give(method: Any, make_problem: Any) -> None:
    problem, inner = make_problem(), GradientDescent(6, 0.1)
    exact = estimate(method, problem, problem.x0 + 0.1, inner)
    found = estimate(FiniteDifferences(method), problem, problem.x0 + 0.1, inner)
    assert relative(found.value, exact.value) < 1e-6
    assert relative(found.linear.v, exact.linear.v) < 1e-6


def test_darts_is_the_step_through_one_inner_step_but_for_its_own() -> None:
    """Identity with the inner rate is ITD through the last step, if f were taken before it."""
    problem = softmax()
    x, y = problem.x0 + 0.2, torch.linspace(-1, 1, len(problem.y0)).double()
    oracle = make(problem)
    found = FiniteDifferences(AID(Identity(0.3))).estimate(
        oracle, Stand(x, y), GradientDescent(1, 1e-12), oracle.streams(0)
    )
    f_x, f_y = oracle.outer(x, y).gradient()
    assert relative(found.value, f_x - 0.3 * oracle.linearize(x, y).cross(f_y)) < 1e-7


def test_a_loss_that_cannot_be_differentiated_twice_is_no_obstacle() -> None:
    class Once(torch.autograd.Function):
        """½ Σ y², whose gradient has no derivative of its own."""

        @staticmethod
        def forward(ctx: Any, y: Tensor) -> Tensor:
            ctx.save_for_backward(y)
            return y.square().sum() / 2

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * ctx.saved_tensors[0]

    problem = bilevel.Problem(
        outer=lambda x, y: (y - 1).square().sum() / 2,
        inner=lambda x, y: Once.apply(y) - (x * y).sum(),
        x0=torch.full((2,), 3.0).double(),
        y0=torch.zeros(2).double(),
    )
    inner = GradientDescent(60, 0.5)
    found = estimate(FiniteDifferences(AID(CG(3))), problem, problem.x0, inner)
    torch.testing.assert_close(found.value, problem.x0 - 1, rtol=1e-6, atol=0)  # y* = x
    with pytest.raises(UserError, match="once_differentiable"):  # autograd would see no curvature
        estimate(AID(CG(3)), problem, problem.x0, inner)


def test_differences_of_losses_that_draw_are_refused() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)).double()

    def loss(x: Tensor, y: Any, batch: bilevel.Batch) -> Tensor:
        return torch.func.functional_call(module, y, (batch.data,)).square().mean() + x.sum()

    rows = torch.ones(4, 2).double()
    y0 = {name: p.detach() for name, p in module.named_parameters()}
    problem = bilevel.Problem(loss, loss, torch.ones(1).double(), y0, rows, rows)
    for method in (Forward(), EvolutionStrategy()):
        with pytest.raises(UserError, match=r"draw random numbers.*call \.eval\(\)"):
            estimate(method, problem, problem.x0, GradientDescent(1, 0.1))
    with pytest.raises(UserError, match="draw random numbers"):
        bilevel.minimize(problem, bilevel.algorithms.BAMM(inner_lr=0.1, outer_lr=0.1), steps=1)


# Along random directions


@pytest.mark.parametrize("kind", ["softmax", "quadratic"])
def test_forward_along_all_signs_is_the_unrolled_derivative(kind: str) -> None:
    """The mean over all u in {−1, 1}^p is exact: E[u u'] = I."""
    problem = softmax() if kind == "softmax" else Q.problem()
    x = torch.linspace(-0.5, 0.5, len(problem.x0), dtype=torch.float64)
    inner, p = GradientDescent(5, 0.4), len(problem.x0)
    signs = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0]).double()] * p)
    oracle = make(problem)
    streams = oracle.streams(0)
    streams.normal = lambda count, size: signs  # type: ignore[method-assign]
    found = Forward(len(signs)).estimate(oracle, Stand(x, problem.y0), inner, streams)
    truth = unrolled(problem, x, problem.y0, [0.4] * 5)
    assert relative(found.value, truth) < 1e-7


def test_directions_are_drawn_anew_in_each_step_and_the_same_again() -> None:
    problem, inner = Q.problem(), GradientDescent(5, 0.4)
    method = Forward(2)
    values = [estimate(method, problem, X, inner, step).value for step in (0, 1, 0)]
    assert torch.equal(values[0], values[2])
    assert not torch.equal(values[0], values[1])


def test_an_evolution_strategy_has_the_derivative_as_its_mean_where_y_is_linear_in_x() -> None:
    """On a quadratic the differences are exact, and one u gives u u' times the derivative."""
    problem, inner = Q.problem(), GradientDescent(4, 0.4)
    oracle = make(problem)
    found = EvolutionStrategy(3, size=0.5).estimate(
        oracle, Stand(X, problem.y0), inner, oracle.streams(0)
    )
    directions = oracle.streams(0).normal(3, 3)
    truth = unrolled(problem, X, problem.y0, [0.4] * 4)
    y = found.inner.y
    f_x = oracle.outer(X, y).gradient()[0]
    mean = (directions.T @ directions / 3) @ (truth - f_x)
    assert relative(found.value, f_x + mean) < 1e-9


def test_trials_of_an_evolution_strategy_see_the_same_rows() -> None:
    """With other rows, the difference over μ = 1e-6 would be of the order of a million."""
    problem = noisy_sum(rows=20).problem()
    method = EvolutionStrategy(4, size=1e-6)
    found = estimate(method, problem, X, SGD(5, 0.1, 3))
    assert float(found.value.norm()) < 100
    newton = estimate(EvolutionStrategy(2), Q.problem(), X, NewtonCG(1e-9))  # any solver
    assert newton.value.isfinite().all()


def test_forward_refuses_what_is_not_made_of_gradient_steps() -> None:
    with pytest.raises(ValueError, match="NewtonCG is not made of them: use GradientDescent"):
        estimate(Forward(), Q.problem(), X, NewtonCG())


@pytest.mark.parametrize(
    "method",
    [FiniteDifferences(AID(CG(3))), FiniteDifferences(ITD()), Forward(2), EvolutionStrategy(2)],
    ids=["aid", "itd", "forward", "evolution"],
)
def test_they_cost_what_they_state(method: Any) -> None:
    assert_priced(method, GradientDescent(4, 0.1))


# What L-BFGS has learned


def test_shine_uses_the_inverse_of_the_inner_solve() -> None:
    """With as many pairs as unknowns a quadratic is known exactly; others about."""
    found = estimate(SHINE(), Q.problem(), X, LBFGS(1e-10))
    assert relative(found.value, Q.gradient(X)) < 0.05
    problem = softmax()
    x = torch.linspace(-0.5, 0.5, len(problem.x0), dtype=torch.float64)
    truth = hypergradient(problem, x)
    plain = estimate(AID(Identity()), problem, x, LBFGS(1e-8))
    shared = estimate(SHINE(), problem, x, LBFGS(1e-8, memory=30))
    refined = estimate(SHINE(CG(8)), problem, x, LBFGS(1e-8, memory=30))
    from_zero = estimate(AID(CG(8)), problem, x, LBFGS(1e-8))
    errors = [relative(e.value, truth) for e in (plain, shared, refined, from_zero)]
    assert errors[1] < errors[0] / 3
    assert errors[2] < errors[1]


def test_shine_at_the_solution_takes_the_v_that_it_is_given() -> None:
    problem = Q.problem()
    y, v = Q.inner_solution(X), Q.linear_solution(X)
    oracle = make(problem)
    found = SHINE().estimate(oracle, Stand(X, y, v), LBFGS(1e-6), oracle.streams(0))
    assert relative(found.value, Q.gradient(X)) < 1e-9


def test_shine_refuses_solvers_that_learn_nothing() -> None:
    with pytest.raises(ValueError, match=r"GradientDescent learns nothing of it: use .*LBFGS"):
        estimate(SHINE(), Q.problem(), X, GradientDescent(3, 0.1))
