"""Hypergradients for large networks: SAMA, DARTS, short series, through runs and by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bilevel
from bilevel.hypergradients import SAMA, FiniteDifferences, LastStep

from ..truth import networks as truth

DARTS = FiniteDifferences(bilevel.AID(bilevel.linear.Identity(0.1)))


def steps(update: Any) -> bilevel.inner.Steps:
    return bilevel.inner.Steps(update, 3)


def inner(weights: nn.Module, net: nn.Module, batch: bilevel.Batch) -> Tensor:
    """Rows weighed by a feature: differences would see what is detached in truth.inner."""
    return (weights(batch.data[0][:, :1])[:, 0] * truth.each(net, batch)).mean()


def found(method: Any, update: Any, dropout: float = 0.3) -> Tensor:
    given = truth.problem(dropout, inner=inner), truth.weight_net(), truth.net(dropout)
    return truth.flat(bilevel.hypergradient(*given, method, steps(update)).value.values())


def test_sama_with_descent_is_darts() -> None:
    """Without dropout, so that both have the same masks: none."""
    update = bilevel.updates.Descent(0.1)
    exact = found(bilevel.AID(bilevel.linear.Identity(0.1)), update, 0.0)
    for method in (SAMA(), DARTS):
        torch.testing.assert_close(found(method, update, 0.0), exact, rtol=1e-6, atol=1e-10)


def test_sama_has_the_derivative_of_adams_step() -> None:
    """u by autograd through the last step of Adam, and the cross product exactly."""
    given = torch.linspace(0.5, 1.5, 4, dtype=torch.float64)

    def quartic(x: Tensor, y: Tensor) -> Tensor:
        return (x * (y - given).pow(4)).sum() / 4

    def outer(x: Tensor, y: Tensor) -> Tensor:
        return (y - 1).pow(2).sum()

    x, y = torch.ones(4, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
    update, memory = bilevel.updates.Adam(0.1), {"t": 0, "m": y, "v": y}
    for t in range(3):
        slope = x * (y - given).pow(3)
        before = memory
        y, memory = update.apply(y, slope, memory, bilevel.updates.Look(t))
    g = slope.clone().requires_grad_()
    m, v = 0.9 * before["m"] + 0.1 * g, 0.999 * before["v"] + 0.001 * g.square()
    moved = -0.1 / (1 - 0.9**3) * m / ((v / (1 - 0.999**3)).sqrt() + 1e-8)
    u = -torch.autograd.grad(moved, g, 2 * (y - 1))[0]
    exact = -(y - given).pow(3) * u
    problem = bilevel.Problem(outer, quartic, x, torch.zeros_like(x))
    value = bilevel.hypergradient(problem, x, torch.zeros_like(x), SAMA(), steps(update)).value
    torch.testing.assert_close(value, exact, rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("update", [bilevel.updates.Adam(0.01), bilevel.updates.Momentum(0.1)])
def test_itd_by_differences_goes_over_the_same_masks(update: Any) -> None:
    itd = bilevel.ITD(truncate=2)
    exact = found(itd, update)
    torch.testing.assert_close(found(FiniteDifferences(itd), update), exact, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("update", [bilevel.updates.Adam(0.01), bilevel.updates.Momentum(0.1)])
def test_the_last_step_by_one_more_gradient_is_itd_through_it(update: Any) -> None:
    """With the masks of that step; half of the digits are right."""
    exact = found(bilevel.ITD(truncate=1), update)
    torch.testing.assert_close(found(LastStep(), update), exact, rtol=1e-5, atol=1e-7)


def test_the_last_step_takes_one_call_of_g_fewer_than_sama() -> None:
    calls = []

    def counted(*given: Any) -> Tensor:
        calls.append(1)
        return inner(*given)

    def of(method: Any) -> int:
        problem = truth.problem(inner=counted)
        calls.clear()
        bilevel.hypergradient(
            problem, truth.weight_net(), truth.net(), method, steps(bilevel.updates.Momentum(0.1))
        )
        return len(calls)

    assert of(LastStep()) == of(SAMA()) - 1


METHODS: dict[str, Any] = {
    "last step": LastStep(),
    "sama": SAMA(),
    "darts": DARTS,
    "neumann": bilevel.AID(bilevel.linear.Neumann(3, 0.1)),
    "nystrom": bilevel.AID(bilevel.linear.Nystrom(4, 0.1)),
}


@pytest.mark.parametrize("name", METHODS)
def test_a_run_with_dropout_and_a_stream_repeats_itself_and_resumes(
    name: str, tmp_path: Any
) -> None:
    rows = torch.utils.data.TensorDataset(truth.X, truth.LABELS)
    loader = torch.utils.data.DataLoader(rows, batch_size=5, shuffle=True)
    method = bilevel.algorithms.Composed(
        inner=bilevel.inner.Steps(bilevel.updates.Adam(0.01), 2, keep=True),
        hypergradient=METHODS[name],
    )
    problem = truth.problem(inner_data=loader)
    whole = bilevel.minimize(problem, method, steps=4)
    bilevel.minimize(problem, method, steps=2, checkpoint=tmp_path)
    resumed = bilevel.minimize(problem, method, steps=4, checkpoint=tmp_path)
    assert torch.equal(whole.state.x, resumed.state.x)
    assert not torch.equal(whole.state.x, problem.x0)


@pytest.mark.parametrize("name", ["darts", "neumann", "nystrom"])
def test_backward_in_a_loop_of_ones_own(name: str) -> None:
    """Against hypergradient() of the same losses."""
    net, weights = truth.net(0.0).eval(), truth.weight_net()
    y = [p for p in net.parameters() if p.requires_grad]
    before = [p.detach().clone() for p in y]
    bilevel.backward(
        lambda: truth.outer(weights, net, truth.SOME),
        lambda: truth.inner(weights, net, truth.ALL),
        x=list(weights.parameters()),
        y=y,
        method=METHODS[name],
    )
    assert all(torch.equal(p, kept) for p, kept in zip(y, before, strict=True))
    assert all(p.grad is None for p in y)
    problem = truth.problem(0.0, y0=truth.net(0.0).eval())
    exact = bilevel.hypergradient(problem, weights, net, METHODS[name]).value
    gradients = truth.flat(p.grad for p in weights.parameters())
    torch.testing.assert_close(gradients, truth.flat(exact.values()), rtol=1e-6, atol=1e-10)


def test_backward_by_differences_draws_alike_on_both_sides_and_anew_each_time() -> None:
    x, y = torch.ones(1, requires_grad=True), nn.Parameter(torch.ones(1))
    drawn: list[float] = []

    def noisy() -> Tensor:
        noise = torch.rand(())
        drawn.append(float(noise))
        return (x * y.square() * noise).sum()

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for _ in range(2):
            bilevel.backward(lambda: y.square().sum(), noisy, x=[x], y=[y], method=DARTS)
    assert len(drawn) == 4
    assert drawn[0] == drawn[1] != drawn[2] == drawn[3]


def test_sama_needs_steps() -> None:
    with pytest.raises(ValueError, match="last step of an update"):
        bilevel.algorithms.Composed(hypergradient=SAMA())


def test_a_one_sided_difference_in_half_precision_is_refused() -> None:
    """It was off by up to a half."""
    rows = torch.randn(20, 1, generator=torch.Generator().manual_seed(0))

    def loss(x: Tensor, net: Any) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            found = net(rows)
        return (x.exp() * (found.float() - 1).square()).mean()

    def found(method: Any) -> Tensor:
        x, net = torch.zeros(()), truth.weight_net().float()
        problem = bilevel.Problem(lambda x, y: loss(0 * x, y), loss, x, net)
        one = steps(bilevel.updates.Descent(0.1))
        value: Tensor = bilevel.hypergradient(problem, x, net, method, one).value
        return value

    with pytest.raises(ValueError, match=r"half precision .* take bilevel\.hypergradients\.SAMA"):
        found(LastStep())
    assert found(SAMA()).sign() == found(bilevel.ITD()).sign()
