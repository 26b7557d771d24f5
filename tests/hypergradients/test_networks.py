"""Hypergradients of networks that draw random numbers and have buffers, against unrolling."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bilevel
from bilevel import AID, ITD
from bilevel.problem.draws import key

from ..truth import networks as truth

UPDATES = {
    "descent": (bilevel.updates.Descent(0.1), truth.descent),
    "momentum": (bilevel.updates.Momentum(0.1), truth.momentum),
    "adam": (bilevel.updates.Adam(0.01), truth.adam),
}
D = 6


def assert_equal(actual: Tensor, exact: Tensor) -> None:
    torch.testing.assert_close(actual, exact, rtol=1e-8, atol=1e-8 * float(exact.abs().max()))


@pytest.mark.parametrize("memory", [1, 4, "256MB"])
@pytest.mark.parametrize("name", UPDATES)
def test_itd_through_dropout_and_batch_norm_is_the_unrolled_gradient(
    name: str, memory: Any
) -> None:
    update, move = UPDATES[name]
    unrolled = truth.Unrolled()
    unrolled.steps(move, D)
    problem = truth.problem()
    inner = bilevel.inner.Steps(update, D)
    found = bilevel.hypergradient(
        problem, truth.weight_net(), truth.net(), ITD(memory=memory), inner
    )
    assert_equal(truth.flat(found.y.values()), truth.flat(unrolled.y.values()))
    assert_equal(truth.flat(found.value.values()), unrolled.hypergradient())


def test_plain_inner_steps_replay_their_draws_too() -> None:
    unrolled = truth.Unrolled()
    unrolled.steps(truth.descent, D)
    found = bilevel.hypergradient(
        truth.problem(),
        truth.weight_net(),
        truth.net(),
        ITD(checkpoint=2),
        bilevel.inner.GradientDescent(D, 0.1),
    )
    assert_equal(truth.flat(found.value.values()), unrolled.hypergradient())


class ReadsItsBuffer(nn.Module):
    """A layer whose output depends on a buffer that it moves, as spectral normalisation's does."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, dtype=torch.float64))
        self.register_buffer("seen", torch.zeros((), dtype=torch.float64))

    def forward(self, rows: Tensor) -> Tensor:
        out = (rows * self.weight).sum(1) * (1 + self.seen)
        self.seen = self.seen + 0.5
        return out


@pytest.mark.parametrize("memory", [1, 2, "256MB"])
def test_buffers_of_then_are_read_on_the_way_back(memory: Any) -> None:
    rows = truth.X[:5]

    def inner(x: Tensor, y: Any) -> Tensor:
        return (y(rows) - x).square().mean()

    problem = bilevel.Problem(
        lambda x, y: (y.weight - 1).pow(4).sum(), inner, torch.ones(5).double(), ReadsItsBuffer()
    )
    found = bilevel.hypergradient(
        problem,
        problem.x0,
        ReadsItsBuffer(),
        ITD(memory=memory),
        bilevel.inner.Steps(bilevel.updates.Descent(0.1), 4),
    )
    x, w = torch.ones(5).double().requires_grad_(), torch.ones(3).double().requires_grad_()
    y = w
    for t in range(4):
        value = ((rows * y).sum(1) * (1 + 0.5 * t) - x).square().mean()
        y = y - 0.1 * torch.autograd.grad(value, y, create_graph=True)[0]
    assert_equal(found.value, torch.autograd.grad((y - 1).pow(4).sum(), x)[0])


def products(unrolled: truth.Unrolled, number: int) -> tuple[Tensor, Tensor]:
    """∇²y g and ∂∇y g/∂x with the mask of this number."""
    value, _ = unrolled.loss(truth.inner, truth.ALL, number, unrolled.y)
    y, x = list(unrolled.y.values()), list(unrolled.x.values())
    slope = torch.cat([s.reshape(-1) for s in torch.autograd.grad(value, y, create_graph=True)])
    rows = [torch.autograd.grad(s, y + x, retain_graph=True, materialize_grads=True) for s in slope]
    both = torch.stack([truth.flat(row) for row in rows])
    return both[:, : len(slope)], both[:, len(slope) :]


def outer_gradients(unrolled: truth.Unrolled) -> tuple[Tensor, Tensor]:
    x, y = list(unrolled.x.values()), list(unrolled.y.values())
    value, _ = unrolled.loss(truth.outer, truth.SOME, key(0, 0, "outer", 0), unrolled.y)
    found = torch.autograd.grad(value, x + y, materialize_grads=True)
    return truth.flat(found[: len(x)]), truth.flat(found[len(x) :])


def test_a_neumann_series_draws_a_mask_a_term() -> None:
    unrolled = truth.Unrolled()
    f_x, f_y = outer_gradients(unrolled)
    r, v = f_y, f_y.clone()
    for term in range(4):
        H, _ = products(unrolled, key(0, 0, "inner", term))
        r = r - 0.1 * H @ r
        v = v + r
    _, J = products(unrolled, key(0, 0, "inner", 4))
    found = bilevel.hypergradient(
        truth.problem(), truth.weight_net(), truth.net(), AID(bilevel.linear.Neumann(4, 0.1))
    )
    assert_equal(truth.flat(found.value.values()), f_x - J.T @ (0.1 * v))


def test_conjugate_gradients_keep_one_mask() -> None:
    unrolled = truth.Unrolled()
    f_x, f_y = outer_gradients(unrolled)
    H, J = products(unrolled, key(0, 0, "inner", 0))
    # After a few steps v is the best point of the Krylov space.
    steps = 3
    basis = torch.stack([torch.linalg.matrix_power(H, i) @ f_y for i in range(steps)], 1)
    basis, _ = torch.linalg.qr(basis)
    v = basis @ torch.linalg.solve(basis.T @ H @ basis, basis.T @ f_y)
    found = bilevel.hypergradient(
        truth.problem(),
        truth.weight_net(),
        truth.net(),
        AID(bilevel.linear.CG(steps)),
    )
    assert found.status == "step_limit"
    assert_equal(truth.flat(found.value.values()), f_x - J.T @ v)


def test_stocbio_takes_the_same_draws_for_steps_and_series() -> None:
    unrolled = truth.Unrolled()
    unrolled.steps(truth.descent, 2)
    unrolled.y = {n: p.detach().requires_grad_() for n, p in unrolled.y.items()}
    f_x, f_y = outer_gradients(unrolled)
    H, _ = products(unrolled, key(0, 0, "inner", 2))
    _, J = products(unrolled, key(0, 0, "inner", 3))
    v = 0.1 * (f_y + f_y - 0.1 * H @ f_y)
    algorithm = bilevel.algorithms.StocBiO(
        inner_steps=2, inner_lr=0.1, neumann_terms=1, neumann_lr=0.1, batch=None, outer_lr=1.0
    )
    result = bilevel.minimize(truth.problem(), algorithm, steps=1)
    moved = truth.flat(truth.weight_net().parameters()) - truth.flat(result.x.values())
    assert_equal(moved, f_x - J.T @ v)


def test_first_order_methods_draw_by_the_same_keys() -> None:
    unrolled = truth.Unrolled()
    unrolled.steps(truth.descent, 1)
    y = {n: p.detach() for n, p in unrolled.y.items()}
    lam, x = 10.0, list(unrolled.x.values())
    # p: one step on g + f/λ from the same start, with the second draw of g and the first of f.
    start = truth.Unrolled()
    start.buffers = unrolled.buffers
    g, buffers = start.loss(truth.inner, truth.ALL, key(0, 0, "inner", 1), start.y)
    f, _ = start.loss(truth.outer, truth.SOME, key(0, 0, "outer", 0), start.y)
    slopes = torch.autograd.grad(g + f / lam, list(start.y.values()))
    p = {n: (t - 0.1 * s).detach() for (n, t), s in zip(start.y.items(), slopes, strict=True)}
    unrolled.buffers = buffers
    values = [
        unrolled.loss(truth.inner, truth.ALL, key(0, 0, "inner", n), point)[0]
        for n, point in ((2, p), (2, y))  # the same mask for both
    ]
    exact = truth.flat(
        torch.autograd.grad(lam * (values[0] - values[1]), x, materialize_grads=True)
    )
    found = bilevel.hypergradient(
        truth.problem(),
        truth.weight_net(),
        truth.net(),
        bilevel.ValueFunction(lam),
        bilevel.inner.GradientDescent(1, 0.1),
    )
    assert_equal(truth.flat(found.value.values()), exact)
