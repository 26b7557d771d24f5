"""Transposes of updates against autograd, and ITD through them against unrolled autograd."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from bilevel.inner import GradientDescent, Steps
from bilevel.updates import (
    AdaGrad,
    Adam,
    AdamW,
    AdaptiveStep,
    Descent,
    Look,
    MeasuredDescent,
    Memory,
    Momentum,
    Nesterov,
    Projected,
    TorchOptimizer,
    Update,
)
from torch import Tensor

import bilevel
from bilevel import ITD
from bilevel.hypergradients import LearnedStart, Stand
from bilevel.oracles import CountingOracle, make
from bilevel.schedules import decaying

from ...truth.dense_truth import relative
from ...truth.small_problems import network, softmax

FALLING = decaying(0.2, 0.5)
UPDATES: dict[str, Update] = {
    "descent": Descent(0.2),
    "momentum": Momentum(0.1, beta=0.8),
    "nesterov": Nesterov(0.1, beta=0.7),
    "adam": Adam(0.05, betas=(0.8, 0.9), epsilon=1e-3),
}
SCHEDULED: dict[str, Update] = {
    "descent": Descent(FALLING),
    "momentum": Momentum(FALLING),
    "nesterov": Nesterov(FALLING),
    "adam": Adam(FALLING, epsilon=1e-3),
}
REFUSED: list[Update] = [
    AdaGrad(0.1),
    AdaptiveStep(1e-3),
    MeasuredDescent(),
    Projected(Descent(0.1), lambda x: x.clamp(0, 1)),
    TorchOptimizer(torch.optim.SGD, 0.1),
]


def some(seed: int, size: int = 6) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def remembered(update: Update, steps: int) -> Memory:
    """What it remembers after so many steps."""
    point = some(0)
    memory = update.init(point)
    for k in range(steps):
        point, memory = update.apply(point, some(10 + k), memory, Look(k))
    return memory


@pytest.mark.parametrize("steps", [0, 1, 5])
@pytest.mark.parametrize(
    "update",
    [*UPDATES.values(), *SCHEDULED.values(), Adam(0.3), AdamW(FALLING, epsilon=1e-3, decay=0.5)],
    ids=str,
)
def test_a_transpose_is_autograds_vjp_of_the_step(update, steps):
    memory, look = remembered(update, steps), Look(steps)
    names = [name for name, value in memory.items() if isinstance(value, Tensor)]
    given = [some(1), some(2), *(memory[name] for name in names)]
    covectors = [some(3), *(some(4 + i) for i in range(len(names)))]

    def step(point: Tensor, gradient: Tensor, *kept: Tensor) -> tuple[Tensor, ...]:
        known = {**memory, **dict(zip(names, kept, strict=True))}
        moved, new = update.apply(point, gradient, known, look)
        return moved, *(new[name] for name in names)

    _, truth = torch.autograd.functional.vjp(step, tuple(given), tuple(covectors))
    of_memory = dict(zip(names, covectors[1:], strict=True))
    found = update.transpose(covectors[0], of_memory, given[1], memory, look)
    assert relative(found.point, truth[0]) < 1e-12
    torch.testing.assert_close(found.scale * found.gradient, truth[1], rtol=1e-12, atol=1e-13)
    assert found.memory.keys() == set(names)
    for name, right in zip(names, truth[2:], strict=True):
        torch.testing.assert_close(found.memory[name], right, rtol=1e-12, atol=1e-14)
    alone = update.transpose(covectors[0], {}, given[1], memory, look)
    zeros = (covectors[0], *(torch.zeros_like(c) for c in covectors[1:]))
    _, truth = torch.autograd.functional.vjp(step, tuple(given), zeros)
    torch.testing.assert_close(alone.scale * alone.gradient, truth[1], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES)
def test_a_transpose_writes_into_none_of_its_arguments(update):
    memory = remembered(update, 3)
    given = {"r": some(1), "g": some(2), **memory}
    of_memory = {name: some(5) for name, value in memory.items() if isinstance(value, Tensor)}
    before = {k: v.clone() if isinstance(v, Tensor) else v for k, v in given.items()}
    update.transpose(given["r"], of_memory, given["g"], memory, Look(3))
    for name, value in before.items():
        now = memory.get(name, given[name])
        assert torch.equal(now, value) if isinstance(value, Tensor) else now == value
    assert all(torch.equal(covector, some(5)) for covector in of_memory.values())


def test_adam_where_a_gradient_has_always_been_zero():
    """There p moves by −lr g/(|g| + ε), whose slope is −lr/ε; autograd would say NaN."""
    update, epsilon = Adam(0.1, epsilon=1e-3), 1e-3
    memory = update.init(some(0))
    gradient = some(1)
    gradient[[1, 4]] = 0.0
    r, of_memory = some(2), {"m": some(3), "v": some(4)}
    found = update.transpose(r, of_memory, gradient, memory, Look())
    assert found.gradient.isfinite().all()
    slope = -0.1 / epsilon * r + (1 - 0.9) * of_memory["m"]
    torch.testing.assert_close(found.gradient[[1, 4]], slope[[1, 4]], rtol=1e-12, atol=0)
    width = 1e-9
    for i in (1, 4):
        ends = []
        for sign in (1, -1):
            g = gradient.clone()
            g[i] = sign * width
            point, new = update.apply(some(0), g, memory, Look())
            ends.append(r @ point + of_memory["m"] @ new["m"] + of_memory["v"] @ new["v"])
        assert float(found.gradient[i]) == pytest.approx(
            float((ends[0] - ends[1]) / (2 * width)), rel=1e-4
        )


@pytest.mark.parametrize("update", REFUSED, ids=lambda update: type(update).__name__)
def test_an_update_without_a_transpose_is_refused_with_a_remedy(update):
    name = type(update).__name__
    message = f"{name} cannot be differentiated by ITD: use Descent, Momentum.*or AID"
    with pytest.raises(ValueError, match=message):
        update.transpose(some(0), {}, some(1), {}, Look())


@pytest.mark.parametrize("update", [AdaGrad(0.1), *REFUSED[-2:]], ids=lambda u: type(u).__name__)
def test_itd_passes_the_refusal_on(update):
    problem = softmax()
    algorithm = bilevel.algorithms.ITDBiO(inner=Steps(update, 3), outer_lr=0.1)
    with pytest.raises(ValueError, match=f"{type(update).__name__} cannot be .*or AID"):
        bilevel.minimize(problem, algorithm, steps=1)


def unrolled(
    problem: bilevel.Problem,
    update: Update,
    x: Tensor,
    y: Tensor,
    rows: list[Tensor | None],
    memory: Memory,
    first_step: int = 0,
    truncate: int | None = None,
    start: Any = None,
) -> Tensor:
    """∂f(x, y^D(x))/∂x by autograd through the steps as torch.optim states them."""
    x = x.clone().requires_grad_()
    y = y.requires_grad_() if start is None else start(x)
    kept = dict(memory)
    for t, batch in enumerate(rows):
        if truncate is not None and t == len(rows) - truncate:
            y = y.detach().requires_grad_()
            kept = {k: v.detach() if isinstance(v, Tensor) else v for k, v in kept.items()}
        (g,) = torch.autograd.grad(problem.inner_loss(x, y, batch), y, create_graph=True)
        lr = update.lr(first_step + t) if callable(update.lr) else update.lr
        if isinstance(update, Descent):
            y = y - lr * g
        elif isinstance(update, Adam):
            a, b = update.betas
            n = kept["t"] + 1
            kept = {"t": n, "m": a * kept["m"] + (1 - a) * g, "v": b * kept["v"] + (1 - b) * g * g}
            size = (kept["v"] / (1 - b**n)).sqrt() + update.epsilon
            y = y - lr * kept["m"] / (1 - a**n) / size
        else:
            kept = {"m": update.beta * kept["m"] + g}
            ahead = isinstance(update, Nesterov)
            y = y - lr * (g + update.beta * kept["m"] if ahead else kept["m"])
    y = y.detach().requires_grad_() if truncate == 0 else y
    (gradient,) = torch.autograd.grad(problem.outer_loss(x, y), x, materialize_grads=True)
    return gradient


def point_of(problem: bilevel.Problem) -> tuple[Tensor, Tensor]:
    return problem.x0 + 0.3 * some(3, len(problem.x0)), problem.y0 + 0.1 * some(4, len(problem.y0))


D = 6


@pytest.mark.parametrize("batch", [None, 5], ids=["all rows", "batches"])
@pytest.mark.parametrize("truncate", [None, 1, 4, 6, 9, 0])
@pytest.mark.parametrize("update", [*UPDATES.values(), *SCHEDULED.values()], ids=str)
def test_itd_through_an_update_is_unrolled_autograd(update, truncate, batch):
    problem = softmax()
    x, y = point_of(problem)
    oracle, inner, k = make(problem, seed=2), Steps(update, D, batch), 3
    found = ITD(truncate).estimate(oracle, Stand(x, y), inner, oracle.streams(k))
    rows = oracle.streams(k).batches("inner", batch, D)
    cut = None if truncate is None else min(D, truncate)
    truth = unrolled(problem, update, x, y, rows, update.init(y), truncate=cut)
    torch.testing.assert_close(found.value, truth, rtol=1e-8, atol=1e-12)
    assert found.inner.steps == D
    assert found.inner.memory == {}


@pytest.mark.parametrize("batch", [None, 5], ids=["all rows", "batches"])
@pytest.mark.parametrize("update", [*UPDATES.values(), *SCHEDULED.values()], ids=str)
def test_itd_through_a_network_with_what_the_last_outer_step_left(update, batch):
    """The memory counts as given, and a schedule goes on where it was."""
    problem = network()
    x, y = point_of(problem)
    oracle, inner = make(problem, seed=2), Steps(update, D, batch, keep=True)
    first = inner.solve(oracle, x, y, oracle.streams(0))
    found = ITD().estimate(oracle, Stand(x, first.y, None, first.memory), inner, oracle.streams(1))
    rows = oracle.streams(1).batches("inner", batch, D)
    truth = unrolled(problem, update, x, first.y, rows, first.memory, first_step=D)
    assert relative(found.value, truth) < 1e-8
    if not isinstance(update, Descent):
        fresh = unrolled(problem, update, x, first.y, rows, update.init(y), first_step=D)
        assert relative(fresh, truth) > 1e-3  # the memory matters


@pytest.mark.parametrize("truncate", [None, 4])
@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES)
def test_itd_through_an_update_from_a_start_that_depends_on_x(update, truncate):
    problem = bilevel.Problem(
        outer=lambda x, y: ((y - 1) ** 2).sum(),
        inner=lambda x, y: ((y - x).cosh() + 0.1 * x * y**2).sum(),
        x0=some(7),
        y0=lambda x: x**2,
    )
    oracle, inner = make(problem), Steps(update, D)
    x = problem.x0
    method = ITD(truncate, start=LearnedStart())
    found = method.estimate(oracle, Stand(x, x**2), inner, oracle.streams(0))
    memory = update.init(x)
    truth = unrolled(
        problem, update, x, x, [None] * D, memory, truncate=truncate, start=lambda x: x**2
    )
    assert relative(found.value, truth) < 1e-8


@pytest.mark.parametrize("truncate", [None, 3, 0])
@pytest.mark.parametrize("batch", [None, 5], ids=["all rows", "batches"])
@pytest.mark.parametrize("lr", [0.2, FALLING], ids=str)
def test_steps_of_descent_are_gradient_descent(lr, batch, truncate):
    problem = softmax()
    x, y = point_of(problem)
    oracle, method = make(problem, seed=1), ITD(truncate)
    plain = bilevel.inner.SGD(D, lr, batch) if batch or callable(lr) else GradientDescent(D, lr)
    one, other = (
        method.estimate(oracle, Stand(x, y), inner, oracle.streams(0))
        for inner in (Steps(Descent(lr), D, batch), plain)
    )
    torch.testing.assert_close(one.inner.y, other.inner.y, rtol=1e-14, atol=1e-15)
    torch.testing.assert_close(one.value, other.value, rtol=1e-13, atol=1e-15)
    torch.testing.assert_close(one.linear.v, other.linear.v, rtol=1e-13, atol=1e-15)
    assert (one.linear.steps, one.inner.steps) == (other.linear.steps, other.inner.steps)


@pytest.mark.parametrize("truncate", [None, 1, 4, 0, 99])
@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES)
def test_what_is_counted_is_the_price(update, truncate):
    problem, batch = softmax(), 5
    oracle, inner, method = CountingOracle(make(problem)), Steps(update, D, batch), ITD(truncate)
    method.estimate(oracle, Stand(*point_of(problem)), inner, oracle.streams(0))
    price = method.price(inner, warm=False).known
    assert price.keys() == {"gc_f", "gc_g", "jv", "hv"}
    assert {kind: oracle.counts[kind] for kind in price} == price
    assert oracle.counts.gc_g_samples == batch * D
