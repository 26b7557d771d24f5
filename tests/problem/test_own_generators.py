"""Random generators that the user's code holds: seeded for each call, and left as they were."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import bilevel
from bilevel.problem.draws import key

D = 4
X0, Y0 = torch.ones(2).double(), torch.zeros(2).double()


class Own:
    """A generator, how to draw a number from it, and what it would give from a seed."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.made = _new(kind, 5)

    def draw(self) -> float:
        return _draw(self.kind, self.made)


def _new(kind: str, seed: int) -> Any:
    if kind == "torch":
        return torch.Generator().manual_seed(seed)
    return {
        "numpy": np.random.default_rng,
        "old numpy": np.random.RandomState,
        "python": random.Random,
    }[kind](seed)


def _draw(kind: str, made: Any) -> float:
    if kind == "torch":
        return float(torch.rand((), generator=made, dtype=torch.float64))
    return float(made.random())


KINDS = ["torch", "numpy", "old numpy", "python"]


def in_a_closure(own: Own) -> tuple[Callable[..., Tensor], Any]:
    return lambda x, y: (y - own.draw() * x).pow(2).sum() + y.pow(4).sum(), Y0


class Noisy(nn.Module):
    def __init__(self, own: Own) -> None:
        super().__init__()
        self.weight, self.own = nn.Parameter(Y0.clone()), own

    def forward(self, x: Tensor) -> Tensor:
        return (self.weight - self.own.draw() * x).pow(2).sum() + self.weight.pow(4).sum()


def in_a_module(own: Own) -> tuple[Callable[..., Tensor], Any]:
    return lambda x, y: y(x), Noisy(own)


@pytest.mark.parametrize("place", [in_a_closure, in_a_module])
@pytest.mark.parametrize("kind", KINDS)
def test_steps_are_differentiated_with_the_numbers_that_they_drew(
    kind: str, place: Callable[[Own], Any]
) -> None:
    own = Own(kind)
    inner, y0 = place(own)

    def outer(x: Tensor, y: Any) -> Tensor:
        return ((y if isinstance(y, Tensor) else y.weight) - 1).pow(2).sum()

    problem = bilevel.Problem(outer, inner, X0, y0)
    steps = bilevel.inner.Steps(bilevel.updates.Descent(0.1), D)
    found = bilevel.hypergradient(problem, X0, y0, bilevel.ITD(memory=1), steps)
    x, y = X0.clone().requires_grad_(), Y0.clone().requires_grad_()
    for t in range(D):
        factor = _draw(kind, _new(kind, key(0, 0, "inner", t)))
        value = (y - factor * x).pow(2).sum() + y.pow(4).sum()
        y = y - 0.1 * torch.autograd.grad(value, y, create_graph=True)[0]
    (exact,) = torch.autograd.grad((y - 1).pow(2).sum(), x)
    torch.testing.assert_close(found.value, exact, rtol=1e-10, atol=0)
    assert own.draw() == _draw(kind, _new(kind, 5))


# The names of random functions in the user's code are noticed, what they give cannot be compared.
@pytest.mark.filterwarnings("ignore:.*not all was compared")
def test_a_problem_leaves_the_global_generators_of_all_libraries_alone(tmp_path: Path) -> None:
    def inner(x: Tensor, y: Tensor) -> Tensor:
        factor = random.random() + np.random.rand() + torch.rand(())  # noqa: NPY002
        return (y - factor * x).pow(2).sum()

    before = random.getstate(), np.random.get_state()[1:], torch.get_rng_state()  # noqa: NPY002
    problem = bilevel.Problem(lambda x, y: y.sum(), inner, X0, Y0)
    method = bilevel.algorithms.AIDBiO(inner_steps=2, inner_lr=0.1, cg_steps=2, outer_lr=0.1)
    bilevel.minimize(problem, method, steps=2, checkpoint=tmp_path)
    after = random.getstate(), np.random.get_state()[1:], torch.get_rng_state()  # noqa: NPY002
    assert repr(before) == repr(after)


class Late(Dataset[Any]):
    """Only its later rows draw, of numpy."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, row: int) -> Tensor:
        noise = np.random.rand() if row > 5 else 0.0  # noqa: NPY002
        return torch.tensor([row + noise, 1.0], dtype=torch.float64)


@pytest.mark.filterwarnings("ignore:.*not all was compared")
@pytest.mark.parametrize("make", [Late, lambda: DataLoader(Late(), 3, shuffle=True)])
def test_rows_that_draw_late_are_read_again_alike(make: Any, tmp_path: Path) -> None:
    def inner(x: Tensor, y: Tensor, batch: bilevel.Batch) -> Tensor:
        return (batch.data @ y - x.sum()).pow(2).mean() / 100 + y.pow(2).sum()

    def run(steps: int, folder: Path) -> Tensor:
        problem = bilevel.Problem(lambda x, y: y.sum(), inner, X0, Y0, inner_data=make())
        method = bilevel.algorithms.ITDBiO(
            inner=bilevel.inner.Steps(bilevel.updates.Descent(0.1), 2, batch=3), outer_lr=0.1
        )
        x: Tensor = bilevel.minimize(problem, method, steps=steps, checkpoint=folder).x
        return x

    np.random.seed(1)  # noqa: NPY002
    whole = run(4, tmp_path / "whole")
    np.random.seed(2)  # noqa: NPY002
    run(2, tmp_path / "broken")
    assert torch.equal(run(4, tmp_path / "broken"), whole)
