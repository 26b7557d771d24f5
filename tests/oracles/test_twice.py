"""Losses without a second derivative are told as such, before a number is wrong."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bilevel
from bilevel.errors import UserError

STEPS = bilevel.inner.Steps(bilevel.updates.Descent(0.1), 2)


def quadratic(x: Tensor, y: Tensor) -> Tensor:
    return ((y - 2 * x) ** 2).sum()


def problem(inner: Any) -> bilevel.Problem:
    return bilevel.Problem(lambda x, y: ((y - 1) ** 2).sum(), inner, torch.zeros(2), torch.zeros(2))


@pytest.fixture(scope="module")
def compiled() -> Any:
    return torch.compile(quadratic, backend="aot_eager")


@pytest.mark.parametrize(
    "method", [bilevel.ITD(), bilevel.AID(bilevel.linear.CG(2))], ids=["itd", "aid"]
)
def test_a_compiled_loss_is_refused_where_its_products_would_be_zero(
    compiled: Any, method: Any
) -> None:
    with pytest.raises(ValueError, match=r"compiled by torch\.compile"):
        bilevel.hypergradient(problem(compiled), torch.zeros(2), torch.zeros(2), method, STEPS)


def test_a_compiled_loss_has_no_implicit_gradient(compiled: Any) -> None:
    x = torch.ones(2, requires_grad=True)
    y = bilevel.argmin(compiled, torch.zeros(2), x, bilevel.inner.GradientDescent(20, 0.25))
    with pytest.raises(ValueError, match=r"compiled by torch\.compile"):
        y.sum().backward()


def test_a_compiled_loss_serves_methods_of_first_derivatives(compiled: Any) -> None:
    method = bilevel.algorithms.F2SA(
        multiplier=100.0, inner_lr=0.25, outer_lr=0.05, inner_steps=10, batch=None
    )
    plain, fast = (
        bilevel.minimize(problem(inner), method, steps=5).state.x for inner in (quadratic, compiled)
    )
    torch.testing.assert_close(fast, plain, rtol=1e-5, atol=1e-6)


def test_differences_serve_where_a_layer_has_no_second_derivative() -> None:
    words = torch.arange(12).reshape(4, 3) % 5
    net = nn.EmbeddingBag(5, 2).double()

    def inner(x: Tensor, net: nn.Module) -> Tensor:
        return (net(words) - x).square().sum()

    x = torch.ones(2, dtype=torch.float64)
    given = bilevel.Problem(lambda x, y: inner(torch.zeros(2), y), inner, x, net), x, net
    with pytest.raises(ValueError, match="no second derivative"):
        bilevel.hypergradient(*given, bilevel.AID(bilevel.linear.Identity(0.1)))
    method = bilevel.hypergradients.FiniteDifferences(bilevel.AID(bilevel.linear.Identity(0.1)))
    found = bilevel.hypergradient(*given, method)
    # v = ∇y f/10, and ∂/∂x ⟨∇y g, v⟩ = −2 Σ over rows of the mean of their words' v.
    slope = torch.autograd.functional.jacobian(
        lambda table: (nn.functional.embedding_bag(words, table)).square().sum(), found.y["weight"]
    )
    exact = 2 * nn.functional.embedding_bag(words, slope / 10).sum(0)
    torch.testing.assert_close(found.value, exact, rtol=1e-6, atol=1e-8)


def test_activations_that_are_computed_again_are_named() -> None:
    class Again(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, rows: Tensor) -> Tensor:
            found: Tensor = torch.utils.checkpoint.checkpoint(
                lambda rows: self.layer(rows).tanh(), rows, use_reentrant=False
            )
            return found

    def inner(x: Tensor, net: nn.Module) -> Tensor:
        return (net(torch.eye(2)) - x).square().sum()

    words = "computes activations again in the backward pass, as torch.utils.checkpoint does"
    with pytest.raises(UserError, match=words):
        bilevel.Problem(lambda x, y: inner(torch.zeros(2), y), inner, torch.ones(2), Again())
    with pytest.raises(UserError, match=words):
        bilevel.argmin(inner, Again(), torch.ones(2))
    held, net = Again(), nn.Linear(2, 2)  # one that is no variable keeps its numbers

    def outer(x: Tensor, net: nn.Module) -> Tensor:
        return inner(x, lambda rows: net(held(rows)))  # type: ignore[arg-type]

    x = torch.ones(2)
    found = bilevel.hypergradient(
        bilevel.Problem(outer, outer, x, net), x, net, bilevel.ITD(), STEPS
    )
    held.forward = lambda rows: held.layer(rows).tanh()  # type: ignore[method-assign]
    plain = bilevel.hypergradient(
        bilevel.Problem(outer, outer, x, net), x, net, bilevel.ITD(), STEPS
    )
    torch.testing.assert_close(found.value, plain.value)


@pytest.mark.parametrize("streamed", [False, True])
def test_both_sides_of_a_difference_have_the_same_draws(streamed: bool) -> None:
    """Masks of dropout, and the batches of a stream: else their noise over 2ε is all there is."""
    rows = torch.randn(12, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.0 if streamed else 0.4))
    net.double()

    def inner(x: Tensor, net: nn.Module, batch: bilevel.Batch) -> Tensor:
        return (net(batch.data[0]) * x).pow(2).mean()

    tensors = torch.utils.data.TensorDataset(rows)
    data = torch.utils.data.DataLoader(tensors, batch_size=4, shuffle=True) if streamed else (rows,)
    x = torch.linspace(1, 2, 4, dtype=torch.float64)
    given = bilevel.Problem(inner, inner, x, net, data, data), x, net
    aid = bilevel.AID(bilevel.linear.CG(3))
    exact = bilevel.hypergradient(*given, aid).value
    found = bilevel.hypergradient(*given, bilevel.hypergradients.FiniteDifferences(aid)).value
    torch.testing.assert_close(found, exact, rtol=1e-5, atol=1e-7)


def test_weight_norm_of_a_module_that_is_no_variable_is_refused() -> None:
    """Its second derivative by torch is wrong; as a variable the module is mended."""
    held = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
    y = [p for p in held.parameters() if p.requires_grad]
    x = torch.ones(1, requires_grad=True)
    with pytest.raises(UserError, match="second derivative of weight_norm is wrong"):
        bilevel.backward(
            lambda: held(torch.ones(1, 2)).sum(),
            lambda: (held(torch.ones(1, 2)) - x).square().sum(),
            x=[x],
            y=y,
        )


class Cube(torch.autograd.Function):
    """Its second derivative is silently zero: autograd sees no graph of the first."""

    @staticmethod
    def forward(ctx: Any, given: Tensor) -> Tensor:
        ctx.save_for_backward(given)
        return given**3

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        given: Tensor = ctx.saved_tensors[0]
        return 3 * given**2 * slope


def cubic(x: Tensor, y: Tensor) -> Tensor:
    cubed: Tensor = Cube.apply(y - x)  # type: ignore[no-untyped-call]
    return cubed.sum() + (y**2).sum()


def test_a_function_marked_as_differentiable_once_is_refused_where_zeros_would_come() -> None:
    words = "Cube.backward is marked as once_differentiable"
    with pytest.raises(UserError, match=words):
        bilevel.hypergradient(problem(cubic), torch.zeros(2), torch.ones(2))
    x, y = torch.zeros(2, requires_grad=True), torch.ones(2, requires_grad=True)
    with pytest.raises(UserError, match=words):
        bilevel.backward(lambda: (y**2).sum(), lambda: cubic(x, y), [x], [y])
    differences = bilevel.hypergradients.FiniteDifferences(bilevel.AID(bilevel.linear.Identity()))
    found = bilevel.hypergradient(problem(cubic), torch.zeros(2), 2 * torch.ones(2), differences)
    # v = ∇y f = 2, and −∇x∇y g v = 6 (y − x) v.
    torch.testing.assert_close(found.value, torch.full((2,), 24.0), rtol=1e-2, atol=0)


def reentrant(layer: nn.Module) -> Tensor:
    """Parameters inside are not in the graph: autograd.grad would find nothing."""
    rows = torch.eye(2, requires_grad=True)
    found: Tensor = torch.utils.checkpoint.checkpoint(layer, rows, use_reentrant=True)
    return found


def test_checkpointing_that_hides_parameters_is_refused() -> None:
    net = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])

    def inner(x: Tensor, net: Any) -> Tensor:
        return (net[1](reentrant(net[0])) - x).square().sum()

    with pytest.raises(UserError, match=r"use_reentrant=True\) hides parameters"):
        bilevel.Problem(lambda x, net: net[1].weight.sum(), inner, torch.ones(2), net)
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(UserError, match=r"in bilevel\.backward, use_reentrant=False will do"):
        bilevel.backward(lambda: net[1].weight.sum(), lambda: inner(x, net), [x], net)


def test_what_to_take_in_place_of_a_layer_is_said_by_its_name() -> None:
    net, words = nn.EmbeddingBag(5, 2), torch.arange(6).reshape(2, 3) % 5

    def inner(x: Tensor, net: nn.Module) -> Tensor:
        return (net(words) - x).square().sum()

    given = bilevel.Problem(lambda x, net: net.weight.sum(), inner, torch.ones(2), net)
    instead = r"take torch\.nn\.Embedding and the mean"
    with pytest.raises(UserError, match=instead):
        bilevel.hypergradient(given, given.x0, given.y0)
    x, steps = torch.ones(2, requires_grad=True), bilevel.inner.GradientDescent(3, 0.1)
    y = bilevel.argmin(
        lambda x, y: (nn.functional.embedding_bag(words, y) - x).square().sum(),
        torch.ones(5, 2),
        x,
        steps,
    )
    with pytest.raises(UserError, match=instead):
        y.sum().backward()
