"""Losses that differentiate for themselves: physics, penalties on gradients, torch.func."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

import bilevel

TIMES = torch.linspace(0, 1, 6, dtype=torch.float64)[:, None]
X0 = torch.tensor([0.5, -0.3], dtype=torch.float64)
LR, D = 0.05, 3


def net() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1)).double()


def in_inputs(x: Tensor, net: Any) -> Tensor:
    """u' = x₀ u + x₁, with u(0) = 1."""
    times = TIMES.clone().requires_grad_()
    u = net(times)
    (slope,) = torch.autograd.grad(u.sum(), times, create_graph=True)
    return (slope - x[0] * u - x[1]).square().mean() + (net(TIMES[:1]) - 1).square().mean()


def by_func(x: Tensor, net: Any) -> Tensor:
    slope = torch.vmap(torch.func.grad(lambda t: net(t[None])[0, 0]))(TIMES)
    return (slope - x[0] * net(TIMES) - x[1]).square().mean() + (net(TIMES[:1]) - 1).square().mean()


def in_y(x: Tensor, net: Any) -> Tensor:
    """A penalty on the slope in the parameters."""
    value = (net(TIMES) - x[0]).square().mean() + 0.1 * x[1].exp() * net[0].weight.square().sum()
    slopes = torch.autograd.grad(value, list(net.parameters()), create_graph=True)
    return value + 0.1 * sum(slope.square().sum() for slope in slopes)


def in_x(x: Tensor, net: Any) -> Tensor:
    x = x * 1  # so that y, which may owe something to x, is held
    value = (net(TIMES) - x[0].sin() * x[1]).square().mean()
    (slope,) = torch.autograd.grad(value, x, create_graph=True)
    return value + slope.square().sum()


class _Bound(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = net()

    def forward(self, loss: Any, x: Tensor) -> Any:
        return loss(x, self.net)


def unrolled(loss: Any) -> Tensor:
    bound, x = _Bound(), X0.clone().requires_grad_()
    y = {n: p.detach().requires_grad_() for n, p in bound.named_parameters()}
    for _ in range(D):
        value = functional_call(bound, y, (loss, x))
        slopes = torch.autograd.grad(value, list(y.values()), create_graph=True)
        y = {n: p - LR * s for (n, p), s in zip(y.items(), slopes, strict=True)}
    return torch.autograd.grad(functional_call(bound, y, (loss, x)), x)[0]


@pytest.mark.parametrize("loss", [in_inputs, by_func, in_y, in_x])
@pytest.mark.parametrize("memory", [1, "1GB"])
def test_a_loss_may_take_derivatives(loss: Any, memory: Any) -> None:
    problem = bilevel.Problem(loss, loss, X0, net())
    steps = bilevel.inner.Steps(bilevel.updates.Descent(LR), D)
    found = bilevel.hypergradient(problem, X0, net(), bilevel.ITD(memory=memory), steps)
    torch.testing.assert_close(found.value, unrolled(loss), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("loss", [in_inputs, by_func, in_y, in_x])
def test_its_value_and_first_derivatives_are_known_too(loss: Any, tmp_path: Any) -> None:
    problem, own, x = bilevel.Problem(loss, loss, X0, net()), net(), X0.clone().requires_grad_()
    oracle = bilevel.oracles.make(problem)
    for point in (oracle.inner(X0, problem.y0), oracle.outer(X0, problem.y0)):
        torch.testing.assert_close(point.value(), loss(x, own).detach())
    (slope,) = torch.autograd.grad(loss(x, own), x)
    torch.testing.assert_close(oracle.inner(X0, problem.y0).gradient_x(), slope)
    for kept in range(2):  # the second finds the first's checkpoint
        result = bilevel.minimize(
            problem, bilevel.algorithms.F2SA(outer_lr=0.1), steps=2, checkpoint=tmp_path
        )
        assert (result.status, kept) == ("step_limit", kept)
    steps = bilevel.inner.GradientDescent(2, 0.01)  # as one plan
    moved = steps.solve(oracle, X0, problem.y0, oracle.streams(0)).y
    assert moved.isfinite().all()
