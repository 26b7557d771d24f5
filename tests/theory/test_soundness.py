"""`check_hypergradient` names what is wrong with a loss, and nothing where nothing is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bilevel

GENERATOR = torch.Generator().manual_seed(0)
ROWS = torch.randn(12, 3, generator=GENERATOR, dtype=torch.float64)
LABELS = (ROWS[:, 0] > 0).double()
WEIGHTS = torch.linspace(-1, 1, 12, dtype=torch.float64)
STEPS = bilevel.inner.GradientDescent(4, 0.1)


class Wrong(torch.autograd.Function):
    """The square, with a slope that autograd takes for a constant."""

    @staticmethod
    def forward(ctx: Any, given: Tensor) -> Tensor:
        ctx.given = given.detach()
        return given.square()

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        return 2 * ctx.given * slope


def squared(given: Tensor) -> Tensor:
    found: Tensor = Wrong.apply(given)  # type: ignore[no-untyped-call]
    return found


def each(net: Any) -> Tensor:
    out = net(ROWS)[:, 0] if isinstance(net, nn.Module) else ROWS @ net
    return (out.tanh() - LABELS).square()


def size(net: Any) -> Tensor:
    return net.square().sum() if isinstance(net, Tensor) else net.weight.square().sum()


def good(x: Tensor, net: Any) -> Tensor:
    return (x.sigmoid() * each(net)).mean() + 0.1 * size(net)


def outer(x: Tensor, net: Any) -> Tensor:
    return each(net).mean()


class Counting:
    """Another loss in each call."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: Tensor, net: Any) -> Tensor:
        self.calls += 1
        return good(x, net) * (1 + self.calls)


def root(x: Tensor, net: Any) -> Tensor:
    return good(x, net) + (size(net) - size(net)).sqrt()


MOVES = "moves with {} by other than its {} says: {}"
BROKEN = {
    "y detached": (
        outer,
        lambda x, net: (each(net).detach().sigmoid() * good(x, net)).mean(),
        "g detaches something that depends on y",
    ),
    "x detached": (
        outer,
        lambda x, net: good(torch.cat([x[:6].detach(), x[6:]]), net),
        MOVES.format("x", "derivative", "g detaches"),
    ),
    "own backward": (
        outer,
        lambda x, net: (x.sigmoid() * squared(each(net))).mean() + size(net),
        "the inner gradient moves with y",
    ),
    "f of y": (
        lambda x, net: (each(net) + 3 * each(net).detach()).mean(),
        good,
        MOVES.format("y", "gradient", "f detaches"),
    ),
    "f of x": (
        lambda x, net: outer(x, net) + x[0] + x[1].detach(),
        good,
        MOVES.format("x", "gradient", "f detaches"),
    ),
    "not through y": (
        lambda x, net: x.square().sum() + 0 * outer(x, net),
        good,
        "the outer loss has no slope in y",
    ),
    "calls counted": (outer, Counting(), "inner loss has another value when it is called again"),
    "root at zero": (outer, root, "not finite at y0: it may have a square root"),
}
STARTS = {
    "network": lambda: nn.Linear(3, 1, bias=False).double(),
    "tensor": lambda: torch.full((3,), 0.3, dtype=torch.float64),
}


def notes(outer: Any, inner: Any, kind: str, x: Tensor = WEIGHTS) -> tuple[str, ...]:
    torch.manual_seed(0)
    problem = bilevel.Problem(outer, inner, x, STARTS[kind]())
    return bilevel.check_hypergradient(problem, x, bilevel.ITD(), STEPS).notes


@pytest.mark.parametrize("kind", STARTS)
@pytest.mark.parametrize("name", BROKEN)
def test_what_is_wrong_is_told(name: str, kind: str) -> None:
    f, g, words = BROKEN[name]
    assert any(words in note for note in notes(f, g, kind))


@pytest.mark.parametrize("kind", STARTS)
def test_a_right_loss_raises_no_doubt(kind: str) -> None:
    assert notes(outer, good, kind) == ()


def test_a_kink_at_x_is_told_as_a_kink() -> None:
    def inner(x: Tensor, net: Any) -> Tensor:
        return (x.clamp(0, 1) * each(net)).mean() + 0.1 * size(net)

    found = notes(outer, inner, "network", 0 * WEIGHTS)
    assert any("the losses have kinks" in note for note in found)
    assert not any("detaches" in note for note in found)


def test_steps_that_run_away_are_told() -> None:
    problem = bilevel.Problem(
        lambda x, net: net.weight.square().sum(),
        lambda x, net: (net.weight - x.exp()).square().sum(),
        torch.zeros(3).double(),
        STARTS["network"](),
    )
    steps = bilevel.inner.GradientDescent(4, 3.0)
    report = bilevel.check_hypergradient(problem, problem.x0, bilevel.ITD(), steps)
    assert any("the inner steps run away" in note for note in report.notes)
