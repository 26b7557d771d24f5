"""Every update against its twin in torch.optim, and what all of them promise."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from bilevel.updates import (
    AdaGrad,
    Adam,
    Descent,
    Look,
    Memory,
    Momentum,
    Nesterov,
    Projected,
    TorchOptimizer,
    Update,
)
from torch import Tensor

import bilevel
from bilevel.schedules import decaying

from ...truth.examples import example, offered

STEPS = 20
RATES = {"constant": 0.07, "schedule": decaying(0.3, 0.5), "integer": 1}
SGD = torch.optim.SGD
TWINS: dict[str, tuple[Callable[..., Update], Callable[..., torch.optim.Optimizer]]] = {
    "descent": (Descent, SGD),
    "momentum": (Momentum, partial(SGD, momentum=0.9)),
    "a little momentum": (partial(Momentum, beta=0.3), partial(SGD, momentum=0.3)),
    "nesterov": (Nesterov, partial(SGD, momentum=0.9, nesterov=True)),
    "nesterov 0.5": (partial(Nesterov, beta=0.5), partial(SGD, momentum=0.5, nesterov=True)),
    "adam": (Adam, torch.optim.Adam),
    "adam 0.8": (
        partial(Adam, betas=(0.8, 0.95), epsilon=1e-3),
        partial(torch.optim.Adam, betas=(0.8, 0.95), eps=1e-3),
    ),
    "adagrad": (AdaGrad, partial(torch.optim.Adagrad, eps=0.0)),
}
FACTORIES: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "rmsprop": partial(torch.optim.RMSprop, lr=0.02, momentum=0.5),
    "adamw": partial(torch.optim.AdamW, lr=0.03, weight_decay=0.1),
    "amsgrad": partial(torch.optim.Adam, lr=0.02, amsgrad=True),
    "rprop": partial(torch.optim.Rprop, lr=0.01),
}
UPDATES = offered(bilevel.updates, Update)
SETTINGS: dict[str, Any] = {
    "lr": 0.1,
    "epsilon": 1e-3,
    "update": Momentum(0.1),
    "project": lambda x: x.clamp(-1, 1),
    "factory": partial(torch.optim.RMSprop, lr=0.02),
}


def gradients(dtype: torch.dtype = torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(7, generator=generator, dtype=dtype) for _ in range(STEPS)]


def start(dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.linspace(-1, 2, 7, dtype=dtype)


def path(update: Update, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    point = start(dtype)
    memory, found = update.init(point), []
    for k, gradient in enumerate(gradients(dtype)):
        point, memory = update.apply(point, gradient, memory, looking(k))
        found.append(point)
    return found


def looking(k: int) -> Look:
    return Look(k, value=lambda: 1.0 / (k + 1), doubt=lambda gradient: 0.1 * gradient)


def twin(
    make: Callable[..., torch.optim.Optimizer], lr: Any, dtype: torch.dtype = torch.float64
) -> list[Tensor]:
    parameter = torch.nn.Parameter(start(dtype))
    optimizer, found = make([parameter]), []
    for k, gradient in enumerate(gradients(dtype)):
        if lr is not None:
            optimizer.param_groups[0]["lr"] = lr(k) if callable(lr) else lr
        parameter.grad = gradient.clone()
        optimizer.step()
        found.append(parameter.detach().clone())
    return found


def assert_close(one: list[Tensor], other: list[Tensor], rtol: float) -> None:
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("name", TWINS)
def test_an_update_takes_the_steps_of_its_twin_in_torch(name, rate):
    make, make_twin = TWINS[name]
    lr = RATES[rate]
    assert_close(path(make(lr=lr)), twin(make_twin, lr), 1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["descent", "momentum", "nesterov", "adam"])
def test_the_bits_are_those_of_torch(name, dtype):
    make, make_twin = TWINS[name]
    ours, theirs = path(make(lr=0.07), dtype), twin(make_twin, 0.07, dtype)
    assert [torch.equal(a, b) for a, b in zip(ours, theirs, strict=True)] == [True] * STEPS


@pytest.mark.parametrize("lr", [None, 0.05, decaying(0.3, 0.5)], ids=str)
@pytest.mark.parametrize("name", FACTORIES)
def test_any_torch_optimiser_takes_the_steps_that_it_takes_by_hand(name, lr):
    ours, theirs = path(TorchOptimizer(FACTORIES[name], lr)), twin(FACTORIES[name], lr)
    assert [torch.equal(a, b) for a, b in zip(ours, theirs, strict=True)] == [True] * STEPS


def test_a_projection_that_binds_nothing_changes_no_bit():
    for inner in (Descent(0.1), Adam(0.1), Momentum(0.1)):
        free, bound = path(inner), path(Projected(inner, lambda x: x))
        assert all(torch.equal(a, b) for a, b in zip(free, bound, strict=True))


def test_adagrad_without_a_rate_takes_the_size_of_the_start():
    size = float(start().square().mean().sqrt())
    assert_close(path(AdaGrad()), path(AdaGrad(size)), 1e-15)


@pytest.mark.parametrize("kind", UPDATES.values(), ids=UPDATES)
def test_an_update_writes_into_none_of_its_arguments(kind):
    update, point = example(kind, **SETTINGS), start()
    memory = update.init(point)
    assert torch.equal(point, start())
    for k, gradient in enumerate(gradients()[:4]):
        before = copy.deepcopy((point, gradient, memory))
        after, new = update.apply(point, gradient, memory, looking(k))
        assert_same((point, gradient, memory), before)
        assert_same(update.apply(point, gradient, memory, looking(k)), (after, new))
        kept = copy.deepcopy((after, new))
        update.stationarity(point, gradient)
        assert_same((point, gradient, memory), before)
        assert_same((after, new), kept)
        assert not after.requires_grad
        assert (after.dtype, after.shape) == (point.dtype, point.shape)
        point, memory = after, new


@pytest.mark.parametrize("kind", UPDATES.values(), ids=UPDATES)
def test_a_memory_is_plain_data_and_goes_on_from_a_file_to_the_bit(kind):
    update, point = example(kind, **SETTINGS), start()
    memory: Memory = update.init(point)
    for k, gradient in enumerate(gradients()):
        if k == 11:
            file = io.BytesIO()
            torch.save({"point": point, "memory": memory}, file)
            file.seek(0)
            loaded = torch.load(file, weights_only=True)
            assert_same(loaded["memory"], memory)
            point, memory = loaded["point"], loaded["memory"]
        point, memory = update.apply(point, gradient, memory, looking(k))
    assert torch.equal(point, path(update)[-1])


@pytest.mark.parametrize("kind", UPDATES.values(), ids=UPDATES)
def test_stationarity_is_zero_where_the_gradient_is(kind):
    inside = torch.linspace(-0.5, 0.5, 7).double()
    update = example(kind, **SETTINGS)
    assert update.stationarity(inside, torch.zeros(7).double()) == 0
    assert update.stationarity(inside, torch.full((7,), 0.1).double()) > 0.2


@pytest.mark.parametrize("kind", [Descent, Momentum, Nesterov, Adam, AdaGrad])
@pytest.mark.parametrize(
    "lr",
    [0, -0.1, float("nan"), "fast", lambda k: -1.0],
    ids=["zero", "negative", "nan", "text", "schedule"],
)
def test_a_wrong_rate_is_refused_when_the_update_is_made(kind, lr):
    with pytest.raises(ValueError, match="lr must be a positive number, got"):
        kind(lr)


@pytest.mark.parametrize("kind", [Descent, Momentum, Nesterov, Adam, AdaGrad])
def test_a_schedule_that_goes_wrong_raises_at_that_step(kind):
    update, point = kind(lambda k: 0.25 - 0.1 * k), start()
    memory = update.init(point)
    for k in range(3):
        point, memory = update.apply(point, gradients()[0], memory, Look(k))
    with pytest.raises(ValueError, match=r"lr must be a positive number, got -0\.05"):
        update.apply(point, gradients()[0], memory, Look(3))


def assert_same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        assert_same(list(one.values()), list(other.values()))
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_same(a, b)
    else:
        assert one == other
