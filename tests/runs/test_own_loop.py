"""Implicit gradients in one's own program, against dense formulas and differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bilevel
from bilevel.errors import UserError

from ..truth import networks as truth

A = torch.tensor([[2.0, 0.3, 0.0], [0.3, 1.5, 0.2], [0.0, 0.2, 1.0]], dtype=torch.float64)
X0 = torch.tensor([0.4, -0.7], dtype=torch.float64)
TIGHT = bilevel.inner.NewtonCG(tol=1e-13)


def quartic(x: Tensor, y: Tensor) -> Tensor:
    shift = torch.stack([x[0], x[1], x[0] * x[1]])
    return y @ A @ y / 2 + y.pow(4).sum() / 4 - shift @ y + (x[0] * y[0]).exp()


def solution(x: Tensor) -> Tensor:
    return bilevel.argmin(quartic, torch.zeros(3, dtype=torch.float64), x, TIGHT)


def test_argmin_has_the_implicit_gradient_and_the_gradients_of_that() -> None:
    x = X0.clone().requires_grad_()
    assert torch.autograd.gradcheck(solution, x, eps=1e-5, atol=1e-7)
    assert torch.autograd.gradgradcheck(solution, x, eps=1e-5, atol=1e-6)
    y = solution(x)
    H, J = torch.autograd.functional.hessian(quartic, (X0, y.detach()))[1][::-1]
    exact = -torch.linalg.solve(H, J)
    found = torch.stack([torch.autograd.grad(part, x, retain_graph=True)[0] for part in y])
    torch.testing.assert_close(found, exact, rtol=1e-8, atol=1e-10)


def test_argmin_takes_and_gives_dicts() -> None:
    def inner(x: Any, y: Any) -> Tensor:
        return (y["a"] - x["p"]).square().sum() + (y["b"] - x["q"] * y["a"].sum()).square().sum()

    p, q = (t.clone().requires_grad_() for t in (X0, X0[:1]))
    y0 = {"a": torch.zeros(2).double(), "b": torch.zeros(1).double()}
    y = bilevel.argmin(inner, y0, {"p": p, "q": q}, TIGHT)
    torch.testing.assert_close(y["a"], p)
    torch.testing.assert_close(y["b"], q * p.sum())
    slopes = torch.autograd.grad(y["b"].sum(), [p, q])
    torch.testing.assert_close(slopes, (q.detach().expand(2), p.detach().sum().reshape(1)))


def test_argmin_takes_modules_as_x_and_y() -> None:
    """A ridge regression: the solution and its derivative in closed form."""
    rows, strength = truth.X[:, :2], nn.Linear(1, 1, bias=False).double()
    given = rows @ torch.tensor([1.0, -2.0], dtype=torch.float64)
    net = nn.Linear(2, 1, bias=False).double()

    def inner(x: Any, y: Any) -> Tensor:
        penalty = x(torch.ones(1, dtype=torch.float64)).exp()
        return (y(rows)[:, 0] - given).square().sum() + (penalty * y.weight.square()).sum()

    y = bilevel.argmin(inner, net, strength, TIGHT)
    (slope,) = torch.autograd.grad(y["weight"].sum(), strength.weight)
    penalty = strength.weight.detach().exp()
    H = rows.T @ rows + penalty * torch.eye(2, dtype=torch.float64)
    exact = torch.linalg.solve(H, rows.T @ given)
    torch.testing.assert_close(y["weight"][0].detach(), exact, rtol=1e-8, atol=1e-10)
    moved = -penalty * torch.linalg.solve(H, exact).sum()
    torch.testing.assert_close(slope, moved, rtol=1e-8, atol=1e-10)
    called = torch.func.functional_call(net, y, (rows,))
    torch.testing.assert_close(called[:, 0].detach(), rows @ exact)


def test_argmin_of_a_loss_that_draws_has_one_draw_for_all_calls() -> None:
    def inner(x: Tensor, y: Tensor) -> Tensor:
        kept = nn.functional.dropout(y, 0.5)  # 0 or 2 y
        return (kept - x).square().sum() + 0.1 * y.square().sum()

    x = torch.ones(8, dtype=torch.float64, requires_grad=True)
    found = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for _ in range(2):
            y = bilevel.argmin(inner, torch.zeros(8, dtype=torch.float64), x, TIGHT)
            (slope,) = torch.autograd.grad(y.sum(), x)
            torch.testing.assert_close(slope, y.detach(), rtol=1e-8, atol=1e-10)  # y is linear in x
            assert {round(value, 6) for value in y.tolist()} == {0.0, round(2 / 4.1, 6)}
            found.append(y.detach())
    assert not torch.equal(*found)


def test_argmin_refuses_what_would_silently_get_no_gradient() -> None:
    net = nn.Linear(2, 3).double()
    rows = torch.ones(1, 2).double()
    with pytest.raises(UserError, match=r"closes over a tensor of shape \(3,.* that requires"):
        bilevel.argmin(lambda x, y: (y - net(rows)[0]).square().sum() + x @ y[:2], A[0], X0)
    held = net(rows)[0].detach()
    found = bilevel.argmin(lambda x, y: (y - held).square().sum(), A[0], X0, TIGHT)
    torch.testing.assert_close(found, held)


def test_argmin_takes_a_loss_that_differentiates_in_tensors_of_its_own() -> None:
    """A parabola whose slope is to be 2 x₀ t: y₁ = 0 and y₂ = x₀, if nothing pulls."""

    def inner(x: Tensor, y: Tensor) -> Tensor:
        times = torch.linspace(0, 1, 5, dtype=torch.float64).requires_grad_()
        curve = y[0] + y[1] * times + y[2] * times**2
        (slope,) = torch.autograd.grad(curve.sum(), times, create_graph=True)
        return (slope - 2 * x[0] * times).square().sum() + y[0].square()

    x = X0.clone().requires_grad_()
    y = bilevel.argmin(inner, torch.zeros(3, dtype=torch.float64), x, TIGHT)
    torch.testing.assert_close(y.detach(), torch.tensor([0, 0, 0.4], dtype=torch.float64))
    assert torch.autograd.grad(y[2], x)[0].tolist() == pytest.approx([1, 0])


def test_argmin_moves_no_statistics_of_a_module() -> None:
    net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 1)).double()
    x = X0[:1].clone().requires_grad_()

    def inner(x: Tensor, net: Any) -> Tensor:
        ridge = sum(p.square().sum() for p in net.parameters())
        return (net(truth.X[:, :3]) - 1).square().mean() + x.exp().sum() * ridge

    y = bilevel.argmin(inner, net, x)
    assert int(net[1].num_batches_tracked) == 0
    assert torch.autograd.grad(y["2.bias"].sum(), x)[0].abs() > 0.01


def test_argmin_says_when_there_is_no_minimum() -> None:
    with pytest.warns(RuntimeWarning, match="argmin has not converged: .* after 100 steps"):
        bilevel.argmin(lambda x, y: (x[0] * y).sum(), A[0], X0)
    with pytest.raises(UserError, match="argmin found no minimum"):
        bilevel.argmin(lambda x, y: -(x[0] * y**2).sum(), A[0], X0)
    with pytest.raises(ValueError, match="the inner loss failed at x0, y0"):
        bilevel.argmin(lambda y, x: x @ A @ x - y @ x, A[0], X0)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("transform", [torch.func.jacrev, torch.func.jacfwd, torch.func.hessian])
def test_argmin_says_which_transforms_pass(transform: Any) -> None:
    with pytest.raises(UserError, match=r"use torch\.autograd\.functional\.jacobian"):
        transform(solution)(X0)


def test_argmin_says_what_to_hand_over_inside_vmap() -> None:
    x, zero = X0.clone().requires_grad_(), torch.zeros(2, dtype=torch.float64)

    def closed(row: Tensor) -> Tensor:
        return bilevel.argmin(lambda x, y: (y - x * row).square().sum(), zero, x, TIGHT)

    with pytest.raises(UserError, match="closes over a tensor that vmap batches"):
        torch.func.vmap(closed)(torch.stack([X0, 2 * X0]))


def test_three_levels_are_nested_argmins() -> None:
    """z*(y, x) inside y*(x) inside f: against differences of f."""

    def middle(x: Tensor, y: Tensor) -> Tensor:
        z = bilevel.argmin(
            lambda held, z: (z - held[0].sin() * held[1]).square().sum() + z.pow(4).sum() / 8,
            torch.zeros(2, dtype=torch.float64),
            (x, y),
            TIGHT,
        )
        return (y - z - 1).square().sum() + y.pow(4).sum() / 10

    def f(x: Tensor) -> Tensor:
        y = bilevel.argmin(middle, torch.zeros(2, dtype=torch.float64), x, TIGHT)
        return (y - x).square().sum()

    x = X0.clone().requires_grad_()
    (slope,) = torch.autograd.grad(f(x), x)
    width = 1e-5
    differences = [
        (f(X0 + width * e) - f(X0 - width * e)).detach() / (2 * width)
        for e in torch.eye(2, dtype=torch.float64)
    ]
    torch.testing.assert_close(slope, torch.stack(differences), rtol=1e-6, atol=1e-8)


def test_vmap_solves_a_batch_as_one_problem() -> None:
    rows = torch.stack([X0, 2 * X0, -X0])
    together = torch.func.vmap(solution)(rows)
    torch.testing.assert_close(together, torch.stack([solution(row) for row in rows]))
    slopes = torch.func.vmap(torch.func.grad(lambda x: solution(x).sum()))(rows)
    x = X0.clone().requires_grad_()
    torch.testing.assert_close(slopes[0], torch.autograd.grad(solution(x).sum(), x)[0])


def test_backward_fills_grad_with_the_implicit_gradient_of_a_network() -> None:
    weights, net = truth.weight_net(), truth.net().eval()
    x = list(weights.parameters())
    y = [p for p in net.parameters() if p.requires_grad]
    solver = bilevel.linear.CG(200, 1e-12)
    for _ in range(2):
        value = bilevel.backward(
            lambda: truth.outer(weights, net, truth.SOME),
            lambda: truth.inner(weights, net, truth.ALL),
            x=x,
            y=y,
            method=bilevel.AID(solver),
        )
    problem = truth.problem(y0=net)
    found = bilevel.hypergradient(problem, weights, net, bilevel.AID(solver))
    got = truth.flat(p.grad for p in x)
    torch.testing.assert_close(got, 2 * truth.flat(found.value.values()), rtol=1e-9, atol=1e-12)
    assert float(value) == pytest.approx(truth.outer(weights, net, truth.SOME).item())
    assert all(p.grad is None for p in net.parameters())


def test_backward_takes_what_optimisers_take() -> None:
    rows, x = torch.tensor([[1.0, 2.0], [0.0, 1.0]]), nn.Parameter(torch.tensor(0.5))
    net = nn.Linear(2, 1)
    for given in (net, net.parameters(), list(net.parameters()), dict(net.named_parameters())):
        x.grad = None
        bilevel.backward(
            lambda: net(rows).square().sum(),
            lambda: (
                (net(rows) - x).square().sum() + sum(p.square().sum() for p in net.parameters())
            ),
            x,
            given,
            bilevel.AID(bilevel.linear.CG(3)),
        )
        assert x.grad is not None
        # y = H⁻¹ 2A'1 x and so on: dH/dx by hand, with A the rows and a column of ones.
        A = torch.cat([rows, torch.ones(2, 1)], 1)
        values = torch.cat([net.weight.detach()[0], net.bias.detach()])
        H = 2 * A.T @ A + 2 * torch.eye(3)
        exact = torch.linalg.solve(H, 2 * A.T @ torch.ones(2)) @ (2 * A.T @ (A @ values))
        torch.testing.assert_close(x.grad, exact, rtol=1e-4, atol=1e-6)


def hooked() -> nn.Parameter:
    found = nn.Parameter(torch.ones(1))
    found.register_hook(lambda slope: slope.clamp(-1, 1))
    return found


LEAF = nn.Parameter(torch.ones(1))


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        ([LEAF], [torch.ones(1)], "y must be a list of tensors that require a gradient"),
        ([2 * LEAF], [hooked()], r"x\[0\] is computed from other tensors: give those"),
        ([LEAF], [hooked()], r"y\[0\] has a hook on its gradient"),
        ([LEAF], [LEAF], "a tensor is in both x and y"),
    ],
)
def test_backward_names_what_it_cannot_use(x: Any, y: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        bilevel.backward(lambda: y[0].sum(), lambda: y[0].square().sum(), x, y)


def test_backward_asks_for_functions_not_for_their_values() -> None:
    y = nn.Parameter(torch.ones(1))
    value: Any = y.square().sum()
    with pytest.raises(TypeError, match=r"inner_loss must be .* lambda: inner\("):
        bilevel.backward(lambda: value, value, [LEAF], [y])


def test_inference_mode_where_every_derivative_would_be_zero_is_refused() -> None:
    x, y = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
    problem = bilevel.Problem(lambda x, y: (y**2).sum(), lambda x, y: ((y - x) ** 2).sum(), x, y)
    acts: list[Callable[[], Any]] = [
        lambda: bilevel.backward(lambda: (y**2).sum(), lambda: ((y - x) ** 2).sum(), [x], [y]),
        lambda: bilevel.argmin(lambda x, y: ((y - x) ** 2).sum(), y, x),
        lambda: bilevel.minimize(problem, steps=1),
    ]
    for act in acts:
        with torch.inference_mode(), pytest.raises(UserError, match="inference_mode"):
            act()


def test_zeros_for_what_no_loss_uses_are_told() -> None:
    x, y = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
    with pytest.warns(RuntimeWarning, match="backward adds zeros"):
        bilevel.backward(lambda: (y**2).sum(), lambda: ((y - x.detach()) ** 2).sum(), [x], [y])


def test_a_y_that_is_no_minimum_is_told() -> None:
    x, y = torch.ones(1, requires_grad=True), torch.full((1,), 0.1, requires_grad=True)
    with pytest.warns(RuntimeWarning, match="negative curvature of inner_loss at y"):
        bilevel.backward(lambda: (y**2).sum(), lambda: (y**4 - x * y**2).sum(), [x], [y])


def test_differences_inside_autocast_see_the_moved_values() -> None:
    """Autocast keeps casts of parameters, of which those of the values before would be wrong."""
    rows, found = torch.randn(30, 4, generator=torch.Generator().manual_seed(0)), list[Tensor]()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    exact = bilevel.AID(bilevel.linear.Identity(1.0))
    for method in (exact, bilevel.hypergradients.FiniteDifferences(exact)):
        x = torch.zeros(30, requires_grad=True)
        with torch.autocast("cpu", torch.bfloat16):
            bilevel.backward(
                lambda: net(rows).float().square().mean(),
                lambda x=x: (x.exp() * (net(rows).float() - 1).square().mean(1)).mean(),
                x=x,
                y=net,
                method=method,
            )
        assert x.grad is not None
        found.append(x.grad)
    assert (found[1] - found[0]).norm() < 0.2 * found[0].norm()
