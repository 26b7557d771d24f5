"""The autograd oracle against whole Hessians and Jacobians, and at the edges of its contract."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.functional import hessian, jacobian
from torch.func import functional_call

import bilevel
from bilevel.errors import UserError
from bilevel.oracles import AutogradOracle

from ..truth.small_problems import network

_F64 = torch.float64


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=_F64)


def assert_equal(actual: Tensor, truth: Tensor, rtol: float = 1e-12) -> None:
    assert actual.shape == truth.shape
    assert (actual - truth).norm() <= rtol * truth.norm(), (actual, truth)


def quadratic(p: int = 3, q: int = 4) -> tuple[bilevel.Problem, dict[str, Tensor]]:
    """g = ½ y'Ay + y'Bx + ½ x'x and f = ½ y'Cy + y'Dx + e'x, with their matrices."""
    A, C = (normal(seed, q, q) for seed in (0, 1))
    parts = {"A": A @ A.T + torch.eye(q), "B": normal(2, q, p), "C": C + C.T, "D": normal(3, q, p)}
    parts["e"] = normal(4, p)

    def inner(x: Tensor, y: Tensor) -> Tensor:
        return y @ parts["A"] @ y / 2 + y @ parts["B"] @ x + x @ x / 2

    def outer(x: Tensor, y: Tensor) -> Tensor:
        return y @ parts["C"] @ y / 2 + y @ parts["D"] @ x + parts["e"] @ x

    x0, y0 = torch.zeros(p, dtype=_F64), torch.zeros(q, dtype=_F64)
    return bilevel.Problem(outer, inner, x0, y0), parts


def test_a_quadratics_answers_equal_its_matrices() -> None:
    problem, M = quadratic()
    oracle, x, y, v = AutogradOracle(problem), normal(5, 3), normal(6, 4), normal(7, 4)
    gradient = M["A"] @ y + M["B"] @ x
    assert_equal(oracle.inner(x, y).value(), y @ M["A"] @ y / 2 + y @ M["B"] @ x + x @ x / 2)
    assert_equal(oracle.outer(x, y).value(), y @ M["C"] @ y / 2 + y @ M["D"] @ x + M["e"] @ x)
    assert_equal(oracle.inner(x, y).gradient(), gradient)
    value, also = oracle.inner(x, y).value_and_gradient()
    assert value == oracle.inner(x, y).value()
    assert_equal(also, gradient)
    outer_x, outer_y = oracle.outer(x, y).gradient()
    assert_equal(outer_x, M["D"].T @ y + M["e"])
    assert_equal(outer_y, M["C"] @ y + M["D"] @ x)
    around = oracle.linearize(x, y)
    assert_equal(around.gradient(), gradient)
    assert_equal(around.hvp(v), M["A"] @ v)
    assert_equal(around.cross(v), M["B"].T @ v)


@pytest.mark.parametrize("rows", [None, torch.tensor([0, 5, 11]), torch.tensor([3])], ids=str)
def test_a_networks_products_equal_its_dense_hessian_and_jacobian(rows: Tensor | None) -> None:
    problem = network()
    x, y = problem.x0 + 0.1 * normal(0, len(problem.x0)), problem.y0 + 0.1 * normal(1, 13)

    def inner(x: Tensor, y: Tensor) -> Tensor:
        return problem.inner_loss(x, y, rows)

    def outer(x: Tensor, y: Tensor) -> Tensor:
        return problem.outer_loss(x, y, outer_rows)

    outer_rows = None if rows is None else rows % 8
    _, (mixed, H) = hessian(inner, (x, y))
    oracle = AutogradOracle(problem)
    around = oracle.linearize(x, y, rows)
    assert_equal(around.gradient(), jacobian(inner, (x, y))[1])
    for v in torch.eye(13, dtype=_F64):  # one linearisation, twenty-six products
        assert_equal(around.hvp(v), H @ v)
        assert_equal(around.cross(v), mixed.T @ v)
    truth = jacobian(outer, (x, y))
    for actual, exact in zip(oracle.outer(x, y, outer_rows).gradient(), truth, strict=True):
        assert_equal(actual, exact)


def test_both_are_linear_and_do_not_wear_out() -> None:
    problem = network()
    around = AutogradOracle(problem).linearize(problem.x0, problem.y0)
    u, v = normal(2, 13), normal(3, 13)
    first = around.hvp(u), around.cross(u)
    assert_equal(around.hvp(2 * u - v), 2 * around.hvp(u) - around.hvp(v))
    assert_equal(around.cross(2 * u - v), 2 * around.cross(u) - around.cross(v))
    assert torch.equal(around.hvp(u), first[0])
    assert torch.equal(around.cross(u), first[1])


def test_a_linearisation_evaluates_the_loss_once() -> None:
    calls = []

    def inner(x: Tensor, y: Tensor) -> Tensor:
        calls.append(1)
        return (y.exp() - x * y).sum()

    problem = bilevel.Problem(lambda x, y: y.sum(), inner, normal(0, 2), normal(1, 2))
    calls.clear()
    around = AutogradOracle(problem).linearize(problem.x0, problem.y0)
    for _ in range(5):
        around.hvp(torch.ones(2, dtype=_F64))
        around.cross(torch.ones(2, dtype=_F64))
        around.gradient()
    assert len(calls) == 1


def test_answers_carry_no_graph_and_leave_the_callers_vectors_alone() -> None:
    problem, _ = quadratic()
    oracle, x, y = AutogradOracle(problem), normal(5, 3), normal(6, 4)
    around = oracle.linearize(x, y)
    answers = [
        oracle.outer(x, y).value(),
        oracle.inner(x, y).value(),
        *oracle.outer(x, y).gradient(),
        *oracle.inner(x, y).value_and_gradient(),
        around.gradient(),
        around.hvp(y),
        around.cross(y),
    ]
    assert not any(answer.requires_grad for answer in [*answers, x, y])
    assert torch.equal(x, normal(5, 3))
    assert torch.equal(y, normal(6, 4))
    assert x.grad is None
    assert y.grad is None


def test_every_answer_is_the_same_inside_no_grad() -> None:
    problem = network()
    oracle, x, y, v = AutogradOracle(problem), problem.x0, problem.y0, normal(0, 13)

    def answers() -> list[Tensor]:
        around = oracle.linearize(x, y)
        outer, inner = oracle.outer(x, y).gradient(), oracle.inner(x, y).value_and_gradient()
        return [*outer, *inner, around.gradient(), around.hvp(v), around.cross(v)]

    outside = answers()
    with torch.no_grad():
        inside = answers()
    assert all(torch.equal(a, b) for a, b in zip(outside, inside, strict=True))


def _linear(x: Tensor, y: Tensor) -> Tensor:
    return 3 * y.sum()


def _bilinear(x: Tensor, y: Tensor) -> Tensor:
    return x @ y


def _square(x: Tensor, y: Tensor) -> Tensor:
    return y @ y


def _apart(x: Tensor, y: Tensor) -> Tensor:
    return y @ y + x @ x


@pytest.mark.parametrize(
    ("inner", "gradient", "hvp", "cross"),
    [
        (_linear, [3.0, 3.0], [0.0, 0.0], [0.0, 0.0]),
        (_bilinear, [1.0, 2.0], [0.0, 0.0], [5.0, 6.0]),
        (_square, [6.0, 8.0], [10.0, 12.0], [0.0, 0.0]),
        (_apart, [6.0, 8.0], [10.0, 12.0], [0.0, 0.0]),
    ],
)
def test_variables_that_the_inner_loss_does_not_use_give_zeros(
    inner: Any, gradient: list[float], hvp: list[float], cross: list[float]
) -> None:
    start = torch.ones(2, dtype=_F64)
    oracle = AutogradOracle(bilevel.Problem(_bilinear, inner, start, start))
    around = oracle.linearize(torch.tensor([1.0, 2.0]).double(), torch.tensor([3.0, 4.0]).double())
    v = torch.tensor([5.0, 6.0]).double()
    assert around.gradient().tolist() == gradient
    assert around.hvp(v).tolist() == hvp
    assert around.cross(v).tolist() == cross


def test_an_outer_loss_without_x_has_zero_gradient_in_x() -> None:
    start = torch.ones(2, dtype=_F64)
    oracle = AutogradOracle(bilevel.Problem(_square, _bilinear, start, start))
    outer_x, outer_y = oracle.outer(start, 3 * start).gradient()
    assert outer_x.tolist() == [0.0, 0.0]
    assert outer_y.tolist() == [6.0, 6.0]


def test_a_part_of_x_that_the_loss_does_not_use_gives_zeros_in_its_place() -> None:
    problem = bilevel.Problem(
        outer=lambda x, y: (y**2).sum(),
        inner=lambda x, y: (y**2 - x["used"] * y).sum(),
        x0={"idle": torch.ones(2).double(), "used": torch.ones(3).double()},
        y0=torch.zeros(3).double(),
    )
    around = AutogradOracle(problem).linearize(problem.x0, problem.y0)
    assert around.cross(torch.ones(3).double()).tolist() == [0.0, 0.0, -1.0, -1.0, -1.0]


def test_rows_on_which_the_loss_leaves_y_or_everything_out_give_zeros() -> None:
    """Only the rows that are tried at the start must use y."""

    def inner(x: Tensor, y: Tensor, batch: bilevel.Batch) -> Tensor:
        terms = {0: torch.ones((), dtype=_F64), 1: x @ x, 2: y @ y + x @ x}
        return terms[int(batch.data[0])]

    start = torch.ones(2, dtype=_F64)
    rows = torch.tensor([2, 2, 2, 2, 1, 0])
    oracle = AutogradOracle(bilevel.Problem(_bilinear, inner, start, start, inner_data=rows))
    for row, scale in ((0, 2.0), (4, 0.0), (5, 0.0)):
        batch = torch.tensor([row])
        around = oracle.linearize(start, start, batch)
        assert oracle.inner(start, start, batch).gradient().tolist() == [scale, scale]
        assert around.gradient().tolist() == [scale, scale]
        assert around.hvp(start).tolist() == [scale, scale]
        assert around.cross(start).tolist() == [0.0, 0.0]


def _structures() -> dict[str, tuple[Any, Any]]:
    """The parameters of one linear map, as x and as y, in every form that is offered."""
    module = nn.Linear(2, 3).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(normal(parameter.ndim, *parameter.shape))
    named = dict(module.named_parameters())
    W, b = module.weight.detach(), module.bias.detach()

    def of_module(parameters: Any) -> Tensor:
        return functional_call(module, parameters, (torch.eye(2, dtype=_F64),))

    def of_parts(parameters: Any) -> Tensor:
        weight, bias = parameters.values() if isinstance(parameters, dict) else parameters
        return weight.T + bias

    return {
        "module": (named, of_module),
        "dict": ({"weight": W, "bias": b}, of_parts),
        "tuple": ((W, b), of_parts),
        "list": ([W, b], of_parts),
        "nest": ({"map": (W, {"b": b})}, lambda p: p["map"][0].T + p["map"][1]["b"]),
    }


@pytest.mark.parametrize("kind", _structures())
def test_every_structure_gives_the_same_flat_answers(kind: str) -> None:
    def oracle_of(kind: str) -> AutogradOracle:
        value, apply = _structures()[kind]
        return AutogradOracle(
            bilevel.Problem(
                outer=lambda x, y: (apply(x) * apply(y)).sin().sum(),
                inner=lambda x, y: (apply(y).exp() - apply(x) * apply(y)).sum(),
                x0=value,
                y0=value,
            )
        )

    oracle, plain = oracle_of(kind), oracle_of("tuple")
    x, y, v = normal(0, 9), normal(1, 9), normal(2, 9)
    around, truth = oracle.linearize(x, y), plain.linearize(x, y)
    assert_equal(around.hvp(v), truth.hvp(v))
    assert_equal(around.cross(v), truth.cross(v))
    for actual, exact in zip(
        oracle.outer(x, y).gradient(), plain.outer(x, y).gradient(), strict=True
    ):
        assert_equal(actual, exact)


@pytest.mark.parametrize("name", bilevel.algorithms.registry())
def test_dropout_draws_the_same_masks_for_the_same_seed(name: str) -> None:
    module = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 1)).double()
    y0 = {key: normal(len(key), *value.shape) for key, value in module.named_parameters()}
    X = normal(0, 20, 3)

    def inner(x: Tensor, y: Any, batch: bilevel.Batch) -> Tensor:
        predictions = functional_call(module, y, (batch.data,))
        ridge = sum(part.square().sum() for part in y.values())
        return (predictions - x).square().mean() + ridge

    def outer(x: Tensor, y: Any, batch: bilevel.Batch) -> Tensor:
        return functional_call(module, y, (batch.data,)).square().mean()

    problem = bilevel.Problem(outer, inner, torch.ones(1).double(), y0, X, X)
    entry = bilevel.algorithms.registry()[name]
    known = {field.name for field in fields(entry.algorithm)}
    few = {"inner_steps": 3, "outer_lr": 0.01}
    algorithm = entry.make(**{key: value for key, value in few.items() if key in known})
    before = torch.random.get_rng_state()
    try:
        runs = [bilevel.minimize(problem, algorithm, steps=2, seed=seed) for seed in (1, 1, 2)]
    except UserError as refusal:
        assert "differences of their gradients mean nothing" in str(refusal)  # noqa: PT017
        return
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(runs[0].x, runs[1].x)
    assert all(torch.equal(runs[0].y[key], runs[1].y[key]) for key in y0)
    assert not torch.equal(runs[0].state.y, runs[2].state.y)
