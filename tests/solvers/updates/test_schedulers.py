"""Outer optimisers of torch with groups and schedulers, against torch's own loop."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bilevel


def groups(named: dict[str, Tensor]) -> torch.optim.Optimizer:
    weights = [p for n, p in named.items() if n.endswith("weight")]
    biases = [p for n, p in named.items() if n.endswith("bias")]
    return torch.optim.SGD(
        [{"params": weights, "lr": 0.1, "weight_decay": 0.01}, {"params": biases, "lr": 1.0}],
        momentum=0.9,
    )


SCHEDULERS: dict[str, Any] = {
    "cosine": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 7),
    "lambda": lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda k: 1 / (k + 1)),
    "warm-up": lambda o: torch.optim.lr_scheduler.LinearLR(o, 0.1, total_iters=3),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_groups_by_name_follow_a_scheduler_as_in_torch(name: str) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    update = bilevel.updates.TorchOptimizer(groups, like=net, scheduler=SCHEDULERS[name])
    point = torch.cat([p.detach().reshape(-1) for p in net.parameters()])
    optimizer = groups(dict(net.named_parameters()))
    scheduler = SCHEDULERS[name](optimizer)
    memory = update.init(point)
    for k in range(5):
        gradient = torch.sin(torch.arange(len(point)) + float(k))
        offset = 0
        for p in net.parameters():
            p.grad = gradient[offset : offset + p.numel()].view_as(p).clone()
            offset += p.numel()
        optimizer.step()
        scheduler.step()
        point, memory = update.apply(point, gradient, memory, bilevel.updates.Look(k))
        assert torch.equal(point, torch.cat([p.detach().reshape(-1) for p in net.parameters()]))


def test_a_run_with_a_scheduler_resumes_to_the_bit(tmp_path: Any) -> None:
    problem = bilevel.Problem(
        lambda x, y: ((y - 1) ** 2).sum(),
        lambda x, y: ((y - 2 * x) ** 2).sum(),
        torch.zeros(2),
        torch.zeros(2),
    )
    outer = bilevel.updates.TorchOptimizer(
        lambda p: torch.optim.AdamW(p, 0.1), scheduler=SCHEDULERS["cosine"]
    )
    method = bilevel.algorithms.ITDBiO(inner_steps=3, inner_lr=0.2, outer=outer)
    whole = bilevel.minimize(problem, method, steps=6)
    bilevel.minimize(problem, method, steps=2, checkpoint=tmp_path)
    resumed = bilevel.minimize(problem, method, steps=6, checkpoint=tmp_path)
    assert torch.equal(whole.state.x, resumed.state.x)
    with pytest.raises(ValueError, match="or a scheduler"):
        bilevel.updates.TorchOptimizer(groups, 0.1, scheduler=SCHEDULERS["cosine"])


@pytest.mark.parametrize(
    ("factory", "scheduler", "name"),
    [
        (torch.optim.LBFGS, None, "LBFGS"),
        (torch.optim.SGD, torch.optim.lr_scheduler.ReduceLROnPlateau, "ReduceLROnPlateau"),
    ],
)
def test_what_asks_for_values_of_the_loss_is_told(factory: Any, scheduler: Any, name: str) -> None:
    update = bilevel.updates.TorchOptimizer(factory, scheduler=scheduler)
    with pytest.raises(ValueError, match=f"{name} asks for values of the loss"):
        update.apply(torch.zeros(2), torch.ones(2), {}, bilevel.updates.Look())
