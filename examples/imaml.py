"""iMAML: a common start for many tasks, with an implicit gradient in your own loop.

    python examples/imaml.py [plot.png]

Each task is a sine with its own amplitude and phase, given by ten points. Its network is trained on
them with a pull ½λ‖y − x‖² towards the start x; after that the steps are discarded, and
bilevel.backward solves (∇²y g) v = ∇y f by CG (Rajeswaran, Finn, Kakade & Levine, 2019).
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor, nn

import bilevel

torch.set_num_threads(1)
torch.manual_seed(0)
STEPS, TASKS, PULL = 40, 2, 0.5
START = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))


def task() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    height, phase = 0.5 + 2 * torch.rand(()), 3 * torch.rand(())
    points = 6 * torch.rand(20, 1) - 3
    values = height * torch.sin(points + phase)
    return points[:10], values[:10], points[10:], values[10:]


def adapt(x: list[Tensor], data: tuple[Tensor, ...]) -> tuple[list[Tensor], bilevel.AID]:
    """The task's own parameters, near x."""
    y = [p.detach().clone().requires_grad_() for p in x]
    optimizer = torch.optim.Adam(y, 0.03)
    for _ in range(12):
        optimizer.zero_grad()
        inner(x, y, data).backward(inputs=y)
        optimizer.step()
    return y, bilevel.AID(bilevel.linear.CG(5))


def predict(y: list[Tensor], points: Tensor) -> Tensor:
    names = [name for name, _ in START.named_parameters()]
    return torch.func.functional_call(START, dict(zip(names, y, strict=True)), points)


def inner(x: list[Tensor], y: list[Tensor], data: tuple[Tensor, ...]) -> Tensor:
    near = sum((b - a).square().sum() for a, b in zip(x, y, strict=True))
    return (predict(y, data[0]) - data[1]).square().mean() + PULL / 2 * near


def outer(y: list[Tensor], data: tuple[Tensor, ...]) -> Tensor:
    return (predict(y, data[2]) - data[3]).square().mean()


x = list(START.parameters())
optimizer, errors = torch.optim.Adam(x, 0.01), []
for _ in range(STEPS):
    optimizer.zero_grad()
    total = 0.0
    for data in [task() for _ in range(TASKS)]:
        y, method = adapt(x, data)
        value = bilevel.backward(
            lambda y=y, d=data: outer(y, d), lambda y=y, d=data: inner(x, y, d), x, y, method
        )
        total += float(value) / TASKS
    optimizer.step()
    errors.append(total)

early, late = sum(errors[:10]) / 10, sum(errors[-10:]) / 10
print(f"error on new points after adapting: {early:.3f} at first, {late:.3f} at the end")
assert late < 0.8 * early
if len(sys.argv) > 1:
    import matplotlib.pyplot as plt

    plt.plot(errors)
    plt.xlabel("outer step"), plt.ylabel("error of adapted networks on new points")
    plt.savefig(sys.argv[1])
