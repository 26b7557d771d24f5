"""Hypergradients through the layers of ordinary networks, against loops with the same draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

import bilevel
from bilevel.hypergradients import SAMA, LastStep

from ..truth import module_kinds as truth
from ..truth.module_kinds import LABELS, ROWS, D, Unrolled
from ..truth.networks import adam, momentum

_F64 = torch.float64
MOMENTUM = bilevel.inner.Steps(bilevel.updates.Momentum(0.1), D)
ADAM = bilevel.inner.Steps(bilevel.updates.Adam(0.01), D)
CG = bilevel.linear.CG(1000, 1e-13)

# The method, its inner solver, the truth, and how many digits it has: SAMA and LastStep take a
# difference, a central and a one-sided one.
METHODS: dict[str, tuple[Any, Any, Callable[[Unrolled], Tensor], float]] = {
    "itd, momentum": (bilevel.ITD(), MOMENTUM, lambda u: u.itd(momentum), 1e-8),
    "itd, adam": (bilevel.ITD(memory=2), ADAM, lambda u: u.itd(adam), 1e-8),
    "aid": (bilevel.AID(CG), None, lambda u: u.aid(), 1e-8),
    "value function": (
        bilevel.ValueFunction(10.0),
        bilevel.inner.GradientDescent(1, 0.1),
        lambda u: u.value_function(10.0),
        1e-8,
    ),
    "sama": (SAMA(), ADAM, lambda u: u.last_step(adam, after=True), 1e-6),
    "last step": (LastStep(), MOMENTUM, lambda u: u.last_step(momentum, after=False), 1e-5),
}
# Differences also see how spectral normalisation's own iteration moves with y, which it detaches.
CASES = [
    (kind, method)
    for kind in truth.KINDS
    for method in METHODS
    if kind != "spectral norm" or method not in ("sama", "last step")
]


def assert_true(kind: str, method: str, workers: int | None) -> None:
    estimate, steps, truly, digits = METHODS[method]
    exact = truly(Unrolled(kind, workers is not None))
    problem = truth.problem(kind, workers)
    found = bilevel.hypergradient(problem, truth.X0, truth.made(kind), estimate, steps).value
    size = float((exact - 0.2 * truth.X0).abs().max())  # of what comes by way of y
    assert size > 1e-6
    torch.testing.assert_close(found, exact, rtol=0, atol=digits * size)


@pytest.mark.parametrize(("kind", "method"), CASES)
def test_every_method_is_right_through_every_kind(kind: str, method: str) -> None:
    assert_true(kind, method, None)


# Starting workers takes a while: each kind once, each method twice.
@pytest.mark.parametrize(
    ("kind", "method"), CASES[:: len(METHODS) + 1] + CASES[3 :: len(METHODS) + 1]
)
def test_on_augmented_rows_from_two_workers_too(kind: str, method: str) -> None:
    assert_true(kind, method, 2)


def inner(x: Tensor, net: nn.Module) -> Tensor:
    return truth.inner(x, net, bilevel.Batch((ROWS, LABELS), torch.arange(6)))


def outer(x: Tensor, net: nn.Module) -> Tensor:
    return nn.functional.cross_entropy(net(ROWS), LABELS)


class Bound(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, loss: Any, x: Tensor) -> Tensor:
        return loss(x, self.net)


def test_sparse_gradients_of_embeddings_are_those_of_dense_ones() -> None:
    found = []
    for sparse in (False, True):
        net = truth.TiedWords(sparse).double()
        net.last.weight = nn.Parameter(torch.ones(5, 4, dtype=_F64).tril())  # no longer tied
        with torch.no_grad():
            net.words.weight.copy_(torch.linspace(-1, 1, 20).view(5, 4))
        x = torch.zeros(6, dtype=_F64)
        problem = bilevel.Problem(outer, inner, x, net)
        steps = bilevel.inner.Steps(bilevel.updates.Descent(0.1), D)
        found.append(bilevel.hypergradient(problem, x, net, bilevel.ITD(), steps).value)
    torch.testing.assert_close(found[1], found[0], rtol=1e-12, atol=1e-14)


def test_bfloat16_inside_and_float32_outside() -> None:
    """Autocast in the loss: x, y and the hypergradient stay float32, as in a loop by hand."""
    net = nn.Sequential(nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 3))

    def half(x: Tensor, net: nn.Module) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            losses = nn.functional.cross_entropy(net(ROWS.float()), LABELS, reduction="none")
        return (x.exp() * losses.float()).mean()

    def f(x: Tensor, net: nn.Module) -> Tensor:
        return nn.functional.cross_entropy(net(ROWS.float()), LABELS)

    x = torch.linspace(-1, 1, 6)
    start = x.clone().requires_grad_()
    y = {n: p.detach().clone().requires_grad_() for n, p in Bound(net).named_parameters()}
    for _ in range(D):
        value = functional_call(Bound(net), y, (half, start))
        slopes = torch.autograd.grad(value, list(y.values()), create_graph=True)
        y = {n: p - 0.1 * s for (n, p), s in zip(y.items(), slopes, strict=True)}
    exact = torch.autograd.grad(functional_call(Bound(net), y, (f, start)), start)[0]
    problem = bilevel.Problem(f, half, x, net)
    steps = bilevel.inner.Steps(bilevel.updates.Descent(0.1), D)
    found = bilevel.hypergradient(problem, x, net, bilevel.ITD(), steps)
    assert found.value.dtype == found.y["0.weight"].dtype == torch.float32
    # Both round to bfloat16 on the way back, −α r or r: to its precision they are the same.
    fine = float(torch.finfo(torch.bfloat16).eps)
    assert float((found.value - exact).abs().max()) < fine * float(exact.abs().max())
