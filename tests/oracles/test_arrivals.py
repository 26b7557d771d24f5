"""Large derivatives, gathered as they arrive: the same bits as those put together at the end."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bilevel
from bilevel.numerics import large_pages
from bilevel.oracles import AutogradOracle, arrivals


class Differentiates(torch.autograd.Function):
    """2 tanh(rows w), whose backward pass differentiates in w itself, as implicit layers do."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(rows, w)
        return 2 * (rows @ w).tanh()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        rows, w = ctx.saved_tensors
        with torch.enable_grad():
            value = (rows @ w).tanh()
        return None, 2 * torch.autograd.grad(value, w, grads[0])[0]


class Net(nn.Module):
    """A weight that is used twice, one that is not used, a sparse embedding, a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(7, 6, padding_idx=0, sparse=True)
        self.twice, self.unused = nn.Linear(6, 6), nn.Linear(3, 2)
        self.conv, self.own = nn.Conv1d(1, 3, 3), nn.Parameter(torch.zeros(12, 2))
        self.is_implicit = False

    def forward(self, rows: Tensor) -> Tensor:
        hidden = self.twice(self.twice(self.words(rows).mean(1)).tanh()).tanh()
        hidden = self.conv(hidden[:, None]).flatten(1)
        return Differentiates.apply(hidden, self.own) if self.is_implicit else hidden @ self.own


def problem(is_implicit: bool) -> bilevel.Problem:
    torch.manual_seed(0)
    net, rows = Net().double(), torch.randint(0, 7, (5, 4))
    net.is_implicit = is_implicit
    nn.init.normal_(net.own)

    def loss(x: Tensor, net: Any) -> Tensor:
        return (x.exp() * net(rows).square().sum(1)).mean()

    return bilevel.Problem(loss, loss, torch.linspace(0, 1, 5).double(), net)


def answers(given: bilevel.Problem) -> dict[str, Tensor]:
    oracle, x, y = AutogradOracle(given), given.x0, given.y0
    v, found = torch.linspace(-1, 1, len(y)).double(), dict[str, Tensor]()
    found["∇y g"] = oracle.inner(x, y).gradient()
    found["∇x f"], found["∇y f"] = oracle.outer(x, y).gradient()
    if not given.y_structure.modules["y0"].module.is_implicit:  # it has one derivative
        around = oracle.linearize(x, y)
        found["∇y g, kept"], found["H v"] = around.gradient(), around.hvp(v)
        found["H v, C v"] = torch.cat(around.both(v))
        found["C v"], found["H 2v"] = around.cross(v), around.hvp(2 * v)
    return found


@pytest.fixture
def all_are_large(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def act() -> None:
        monkeypatch.setattr(arrivals, "LARGE", 0)
        monkeypatch.setattr(large_pages, "LARGE", 0)

    return act


@pytest.mark.parametrize("is_implicit", [False, True])
def test_what_is_gathered_on_arrival_has_the_bits_of_what_is_put_together(
    all_are_large: Callable[[], None], is_implicit: bool
) -> None:
    given = problem(is_implicit)
    exact = answers(given)
    all_are_large()
    # Twice: vectors that are no longer used lend their memory, which is not zero, to others.
    for _ in range(2):
        found = answers(given)
        for name, value in exact.items():
            assert torch.equal(found[name], value), name


def test_a_linearisation_holds_neither_its_last_product_nor_itself(
    all_are_large: Callable[[], None],
) -> None:
    all_are_large()
    given = problem(False)
    around = AutogradOracle(given).linearize(given.x0, given.y0)
    gc.disable()
    try:
        gone = [weakref.ref(around.hvp(given.y0)), weakref.ref(around)]
        assert gone[0]() is None
        del around
        assert gone[1]() is None
    finally:
        gc.enable()


def test_no_hook_is_left_on_tensors_of_the_users(all_are_large: Callable[[], None]) -> None:
    all_are_large()
    x, net = torch.zeros(3, requires_grad=True), nn.Linear(3, 2)

    def inner() -> Tensor:
        ridge = sum(p.square().sum() for p in net.parameters())
        return net(x[None]).square().sum() + ridge

    bilevel.backward(lambda: net(x[None]).sum(), inner, x=[x], y=list(net.parameters()))
    assert not any(p._backward_hooks for p in net.parameters())
