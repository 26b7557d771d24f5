"""A run whose loss, or what it reads, was edited must not go on as if it were the same."""

from __future__ import annotations

import functools
import random
import shutil
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import bilevel
from attack.tally import Tally, WrongError
from bilevel.errors import UserError

NAME, SHARE = "edited losses", 60
_STEPS = 3
Loss = Callable[..., Tensor]


def _weighted(weight: Any, x: Tensor, y: Tensor) -> Tensor:
    return (weight * (y - 1) ** 2).sum()


class _Object:
    def __init__(self, weight: float) -> None:
        self.weight = weight

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        return _weighted(self.weight, x, y)

    def method(self, x: Tensor, y: Tensor) -> Tensor:
        return self(x, y)


def _hooked(weight: float) -> Loss:
    net = nn.Identity()
    net.register_forward_hook(lambda module, given, out: weight * out)
    return lambda x, y: ((net(y) - 1) ** 2).sum()


def _of_table(weight: float) -> Loss:
    table = {"weights": [1.0, weight]}
    return lambda x, y: _weighted(table["weights"][1], x, y)


def _default(weight: float) -> Loss:
    return lambda x, y, *, w=weight: _weighted(w, x, y)


def _cached(weight: float) -> Loss:
    @functools.cache
    def one() -> float:
        return weight

    return lambda x, y: _weighted(one(), x, y)


def _compiled(weight: float) -> Loss:
    made: dict[str, Any] = {}
    exec(f"def loss(x, y): return ({weight!r} * (y - 1) ** 2).sum()", made)
    return made["loss"]


_KINDS: tuple[Callable[[float], Loss], ...] = (
    lambda w: lambda x, y: _weighted(w, x, y),
    lambda w: functools.partial(functools.partial(_weighted, w)),
    lambda w: functools.partial(_weighted, torch.tensor([1.0, w])),
    _Object,
    lambda w: _Object(w).method,
    _hooked,
    _of_table,
    _default,
    _cached,
    _compiled,
)


def attack(tally: Tally, tries: int, chance: random.Random) -> None:
    for i in range(tries):
        kind, weight = _KINDS[i % len(_KINDS)], 2 + chance.random()
        tally.attempt(f"edit {i}", lambda kind=kind, weight=weight: _edited(kind, weight))


def _edited(kind: Callable[[float], Loss], weight: float) -> None:
    shutil.rmtree("edited", ignore_errors=True)
    _run(kind(1.5), _STEPS)
    try:
        _run(kind(weight), _STEPS + 1)
    except ValueError as error:
        raise UserError(str(error)) from error
    raise WrongError("a run went on although its loss was edited")


def _run(outer: Loss, steps: int) -> None:
    problem = bilevel.Problem(
        outer=outer,
        inner=lambda x, y: ((y - x) ** 2).sum(),
        x0=torch.zeros(2),
        y0=torch.zeros(2),
    )
    method = bilevel.algorithms.AIDBiO(inner_steps=3, inner_lr=0.2, cg_steps=2, outer_lr=0.2)
    bilevel.minimize(problem, method, steps=steps, checkpoint="edited")
