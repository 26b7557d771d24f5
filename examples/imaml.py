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

torch.set_num_threads(1), torch.manual_seed(0)
STEPS, TASKS, PULL = 60, 3, 4.0
START = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))
NAMES = list(START.state_dict())
CG = bilevel.AID(bilevel.linear.CG(5))


def task(known: int = 10) -> tuple[Tensor, ...]:
    height, phase = 0.5 + 2 * torch.rand(()), 3 * torch.rand(())
    points = torch.cat([6 * torch.rand(known, 1) - 3, torch.linspace(-3, 3, 40)[:, None]])
    values = height * torch.sin(points + phase)
    return points[:known], values[:known], points[known:], values[known:]


def adapt(x: list[Tensor], data: tuple[Tensor, ...]) -> list[Tensor]:
    y = [p.detach().clone().requires_grad_() for p in x]
    optimizer = torch.optim.Adam(y, 0.03)
    for _ in range(12):
        optimizer.zero_grad()
        inner(x, y, data).backward(inputs=y)
        optimizer.step()
    return y


def predict(y: list[Tensor], points: Tensor) -> Tensor:
    return torch.func.functional_call(START, dict(zip(NAMES, y, strict=True)), points)


def inner(x: list[Tensor], y: list[Tensor], data: tuple[Tensor, ...]) -> Tensor:
    near = sum((b - a).square().sum() for a, b in zip(x, y, strict=True))
    return (predict(y, data[0]) - data[1]).square().mean() + PULL / 2 * near


def outer(y: list[Tensor], data: tuple[Tensor, ...]) -> Tensor:
    return (predict(y, data[2]) - data[3]).square().mean()


x, first = list(START.parameters()), [p.detach().clone() for p in START.parameters()]
optimizer = torch.optim.Adam(x, 0.01)
for _ in range(STEPS):
    optimizer.zero_grad()
    for data in [task() for _ in range(TASKS)]:
        y = adapt(x, data)
        bilevel.backward(
            lambda y=y, d=data: outer(y, d) / TASKS, lambda y=y, d=data: inner(x, y, d), x, y, CG
        )
    optimizer.step()

starts, fresh = {"any start": first, "the learned start": x}, [task() for _ in range(50)]
errors = {n: sum(outer(adapt(s, d), d).item() for d in fresh) / 50 for n, s in starts.items()}
print("error on new tasks from", ", from ".join(f"{n}: {e:.3f}" for n, e in errors.items()))
assert errors["the learned start"] < 0.6 * errors["any start"]
if len(sys.argv) > 1:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(11, 3.5), sharey=True, layout="constrained")
    for axis, data in zip(axes, fresh[:3], strict=True):
        axis.plot(data[2], data[3], "k:", label="a new task")
        for name, start in starts.items():
            axis.plot(data[2], predict(adapt(start, data), data[2]).detach(), label=f"from {name}")
        axis.plot(data[0], data[1], "ko", label="its ten points")
    axes[0].legend(), figure.savefig(sys.argv[1])
