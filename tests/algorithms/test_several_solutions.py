"""Inner problems with several solutions: BDA, IAPTT and BAMM find the right one; no others lie.

g leaves y₂ free, and f would have it equal to x: the optimistic solution is x = y₁ = y₂ = e. Who
takes y₂ as it starts ends at x = e/2.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
import torch
from bilevel.inner import GradientDescent, NewtonCG
from torch import Tensor

import bilevel
from bilevel.algorithms import BAMM, BDA, BVFSM, IAPTT, ITDBiO, registry
from bilevel.hypergradients import Aggregated, Stand
from bilevel.oracles import make
from bilevel.oracles.differences import Differenced, along, outer_products

from ..truth.dense_truth import relative
from ..truth.small_problems import network, softmax

E = torch.tensor([1.0, -0.5], dtype=torch.float64)


def free() -> bilevel.Problem:
    def outer(x: Tensor, y: Tensor) -> Tensor:
        return ((x - y[2:]).square().sum() + (y[:2] - E).square().sum()) / 2

    def inner(x: Tensor, y: Tensor) -> Tensor:
        return y[:2].square().sum() / 2 - x @ y[:2]

    return bilevel.Problem(outer, inner, torch.zeros(2).double(), torch.zeros(4).double())


@pytest.mark.parametrize(
    ("algorithm", "steps", "tolerance"),
    [
        (BDA(inner_steps=6, inner_lr=0.8, mixed_lr=0.5, outer_lr=0.3), 80, 1e-6),
        # Around the solution the worst iterate changes from step to step, so that it nears slowly.
        (IAPTT(inner_steps=6, inner_lr=0.8, start_lr=0.3, outer_lr=0.3), 300, 2e-2),
        (BAMM(inner_lr=0.5, outer_lr=0.05, share=0.2), 600, 1e-4),
        (BVFSM(inner_lr=0.5, outer_lr=0.2, barrier=1e-3, ridge=0.0), 120, 1e-2),
    ],
    ids=["bda", "iaptt", "bamm", "bvfsm"],
)
def test_the_optimistic_solution_is_found(algorithm: Any, steps: int, tolerance: float) -> None:
    result = bilevel.minimize(free(), algorithm, steps=steps, evaluate_every=steps)
    assert relative(result.x, E) < tolerance
    assert relative(result.y, torch.cat([E, E])) < 10 * tolerance


def test_who_takes_y_as_it_starts_ends_elsewhere() -> None:
    algorithm = ITDBiO(inner_steps=10, inner_lr=0.8, outer_lr=0.3)
    result = bilevel.minimize(free(), algorithm, steps=60, evaluate_every=60)
    assert relative(result.x, E / 2) < 1e-6
    assert torch.equal(result.y[2:], torch.zeros(2).double())


@pytest.mark.parametrize("name", registry())
def test_nobody_calls_a_wrong_point_converged(name: str) -> None:
    entry = registry()[name]
    changes = {"batch": None} if "batch" in {f.name for f in fields(entry.algorithm)} else {}
    result = bilevel.minimize(free(), entry.make(**changes), steps=80, tol=0.03)
    if result.status == "converged":
        assert float((result.x - E).norm()) < 0.1
    elif float((result.x - E / 2).norm()) < 0.05:
        assert result.status in ("doubtful", "stalled", "step_limit")


# How they get there


@pytest.mark.parametrize("decay", [1.0, 0.7])
def test_aggregated_is_the_derivative_of_its_steps(decay: float) -> None:
    """Against unrolled autograd, on losses that curve everywhere."""
    problem = softmax()
    x = torch.linspace(-0.5, 0.5, len(problem.x0), dtype=torch.float64)
    method = Aggregated(weight=0.6, decay=decay, lr=0.3)
    oracle = make(problem)
    stand = Stand(x, problem.y0 + 0.1)
    found = method.estimate(oracle, stand, GradientDescent(5, 0.7), oracle.streams(0))
    truth, y = unrolled(problem, x, stand.y, method)
    assert relative(found.inner.y, y) < 1e-12
    assert relative(found.value, truth) < 1e-8


def unrolled(problem: Any, x: Tensor, y: Tensor, method: Aggregated) -> tuple[Tensor, Tensor]:
    f, g = problem.outer_loss, problem.inner_loss
    x, y = x.clone().requires_grad_(), y.clone().requires_grad_()
    for t in range(5):
        a = method.weight * method.decay**t
        f_y, g_y = (torch.autograd.grad(k(x, y), y, create_graph=True)[0] for k in (f, g))
        y = y - a * method.lr * f_y - (1 - a) * 0.7 * g_y
    return torch.autograd.grad(f(x, y), x)[0], y.detach()


def test_aggregated_refuses_what_is_not_made_of_gradient_steps() -> None:
    oracle = make(free())
    stand = Stand(free().x0, free().y0)
    with pytest.raises(ValueError, match="NewtonCG is not made of them: use GradientDescent"):
        Aggregated().estimate(oracle, stand, NewtonCG(), oracle.streams(0))


def test_iaptt_goes_back_from_the_worst_iterate() -> None:
    """From a start that f likes and g does not, each step makes f worse: all are counted."""
    problem = bilevel.Problem(
        outer=lambda x, y: y.square().sum() / 2,
        inner=lambda x, y: (y - x).square().sum() / 2,
        x0=torch.ones(1).double(),
        y0=torch.zeros(1).double(),
    )
    algorithm, oracle = IAPTT(inner_steps=3, inner_lr=0.5), make(problem)
    state = algorithm.init(oracle, problem.x0, problem.y0)
    d = algorithm.directions(oracle, state, oracle.streams(0))
    # y_3 = 1 − (1/2)³ from 0: ∂y_3/∂x = 7/8, ∂y_3/∂z = 1/8.
    assert d.by_point["x"].item() == pytest.approx(7 / 8 * 7 / 8)
    assert d.by_point["z"].item() == pytest.approx(7 / 8 / 8)
    # From 2 on each step makes f better: the first is the worst.
    state = algorithm.init(oracle, problem.x0, problem.y0 + 2)
    d = algorithm.directions(oracle, state, oracle.streams(0))
    assert d.by_point["x"].item() == pytest.approx(3 / 2 / 2)
    assert d.kept["y"].item() == pytest.approx(1 + 1 / 8)


# Differences


def test_differences_of_gradients_are_products_with_second_derivatives() -> None:
    problem = network()
    exact = make(problem)
    rough = Differenced(exact)
    generator = torch.Generator().manual_seed(0)
    x = problem.x0 + 0.1
    y, v = (torch.randn(len(problem.y0), generator=generator, dtype=torch.float64) for _ in "yv")
    rows = torch.tensor([1, 4, 5])
    for part in (None, rows):
        truth, found = exact.linearize(x, y, part), rough.linearize(x, y, part)
        assert relative(found.hvp(v), truth.hvp(v)) < 1e-8
        assert relative(found.cross(v), truth.cross(v)) < 1e-8
        assert torch.equal(found.gradient(), truth.gradient())
        assert torch.equal(found.value(), truth.value())


def test_second_derivatives_of_f_by_differences() -> None:
    y, x = torch.tensor([1.0, 2.0]).double(), torch.tensor([3.0]).double()
    problem = bilevel.Problem(
        outer=lambda x, y: (x * y**3).sum(), inner=lambda x, y: y.square().sum(), x0=x, y0=y
    )
    v = torch.tensor([1.0, -1.0]).double()
    f_yy, f_xy = outer_products(make(problem), x, y, v)
    torch.testing.assert_close(f_yy, 6 * x * y * v, rtol=1e-8, atol=0)
    torch.testing.assert_close(f_xy, (3 * y.square() * v).sum()[None], rtol=1e-8, atol=0)
    assert not along(lambda y: (y.sin(),), y, 0 * v)[0].any()
