"""Clipping, decoupled decay and groups of parameters, against torch and differences."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from bilevel.updates import AdamW, Clipped, Descent, Look, Momentum, TorchOptimizer
from torch import Tensor, nn


def some(seed: int, size: int = 6) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_adamw_has_the_bits_of_torchs() -> None:
    update, point = AdamW(0.05, decay=0.3), some(0)
    parameter = nn.Parameter(point.clone())
    optimizer = torch.optim.AdamW([parameter], lr=0.05, weight_decay=0.3)
    memory = update.init(point)
    for k in range(5):
        point, memory = update.apply(point, some(10 + k), memory, Look(k))
        parameter.grad = some(10 + k)
        optimizer.step()
        assert torch.equal(point, parameter.detach())


@pytest.mark.parametrize("norm", [0.5, 100.0], ids=["clipped", "short enough"])
def test_the_transpose_of_a_clipped_step_is_that_of_differences(norm: float) -> None:
    update, gradient, r = Clipped(Momentum(0.2), norm), some(1), some(2)
    memory = {"m": some(3)}
    back = update.transpose(r, {"m": some(4)}, gradient, memory, Look())
    found = back.scale * back.gradient

    def value(g: Tensor) -> Tensor:
        moved, new = update.apply(some(0), g, memory, Look())
        return r @ moved + some(4) @ new["m"]

    width = 1e-6
    unit = torch.eye(6, dtype=torch.float64)
    differences = [(value(gradient + width * e) - value(gradient - width * e)) for e in unit]
    torch.testing.assert_close(found, torch.stack(differences) / (2 * width), rtol=1e-7, atol=1e-9)


def test_clipping_is_torchs() -> None:
    gradient = some(1)
    parameter = nn.Parameter(some(0))
    parameter.grad = gradient.clone()
    nn.utils.clip_grad_norm_([parameter], 0.5)
    moved, _ = Clipped(Descent(1.0), 0.5).apply(some(0), gradient, {}, Look())
    torch.testing.assert_close(moved, some(0) - parameter.grad, rtol=1e-5, atol=0)


def test_a_torch_optimiser_has_groups_of_a_modules_parameters_by_name() -> None:
    layer = nn.Linear(2, 1).double()

    def make(named: dict[str, Any]) -> torch.optim.Optimizer:
        groups = [{"params": [named["weight"]]}, {"params": [named["bias"]], "lr": 0.5}]
        return torch.optim.SGD(groups, lr=0.1, momentum=0.9)

    update, point = TorchOptimizer(make, like=layer), some(0, 3)
    memory = update.init(point)
    for _ in range(2):
        point, memory = update.apply(point, torch.ones(3).double(), memory, Look())
    moved = torch.tensor([0.1, 0.1, 0.5]).double() * (1 + 1.9)
    torch.testing.assert_close(point, some(0, 3) - moved)
