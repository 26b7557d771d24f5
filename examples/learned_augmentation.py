"""Learned augmentation: how far to shift training digits, and how much noise to add.

    python examples/learned_augmentation.py [plot.png]

There are 60 digits to train on; those to validate are shifted by up to a pixel. x: the logarithms
of the sizes of random shifts and of noise in the inner loss, whose draws are kept for derivatives.
"""

from __future__ import annotations

import sys

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import bilevel

torch.set_num_threads(1), torch.manual_seed(0)
images, digits = (torch.as_tensor(part) for part in load_digits(return_X_y=True))
order = torch.randperm(len(images))
images, digits = images[order].float().view(-1, 1, 8, 8) / 16, digits[order]
NET = nn.Sequential(nn.Flatten(), nn.Linear(64, 48), nn.Tanh(), nn.Linear(48, 10))


def moved(pictures: Tensor, by: Tensor) -> Tensor:
    """Each picture by (right, down), in pixels; differentiable by it."""
    still = torch.eye(2).expand(len(pictures), 2, 2)
    grid = nn.functional.affine_grid(
        torch.cat([still, -by[:, :, None] / 4], 2), list(pictures.shape), align_corners=False
    )
    return nn.functional.grid_sample(pictures, grid, align_corners=False)


others = moved(images[60:], 2 * torch.rand(len(images) - 60, 2) - 1)


def inner(x: Tensor, net: nn.Module, batch: bilevel.Batch) -> Tensor:
    pictures, labels = batch.data
    shift, noise = x.exp()
    pictures = moved(pictures, shift * torch.randn(len(pictures), 2))
    return nn.functional.cross_entropy(net(pictures + noise * torch.randn_like(pictures)), labels)


def outer(x: Tensor, net: nn.Module, batch: bilevel.Batch) -> Tensor:
    return nn.functional.cross_entropy(net(batch.data[0]), batch.data[1])


def accuracy(x: Tensor, net: nn.Module) -> float:
    return float((net(others[300:]).argmax(1) == digits[360:]).float().mean())


def train(outer_lr: float) -> bilevel.Result:
    data = (others[:300], digits[60:360]), (images[:60], digits[:60])
    problem = bilevel.Problem(outer, inner, torch.tensor([-3.0, -3.0]), NET, *data)
    steps = bilevel.inner.Steps(bilevel.updates.Momentum(0.1), steps=5, keep=True)
    algorithm = bilevel.algorithms.ITDBiO(inner=steps, outer=bilevel.updates.Adam(outer_lr))
    return bilevel.minimize(
        problem, algorithm, steps=120, metrics={"accuracy": accuracy}, evaluate_every=10,
        callbacks=[lambda progress: path.append(progress.x.exp())],
    )  # fmt: skip


path: list[Tensor] = []
runs = {"nearly none": train(1e-12), "learned": train(0.05)}
curves = {n: [r.metrics["accuracy"] for r in run.history if r.metrics] for n, run in runs.items()}
print({name: f"{curve[-1]:.3f}" for name, curve in curves.items()}, "shift, noise:", path[-1])
assert curves["learned"][-1] > curves["nearly none"][-1] + 0.02
assert path[-1][0] > 0.1, "pixels"
if len(sys.argv) > 1:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
    for name, curve in curves.items():
        axes[0].plot(range(10, 121, 10), curve, label=name)
    axes[0].set(xlabel="outer step", ylabel="accuracy on moved digits")
    axes[1].plot(torch.stack(path[120:]), label=["shift, in pixels", "noise"])
    axes[1].set(xlabel="outer step", ylabel="size")
    axes[0].legend(), axes[1].legend()
    figure.savefig(sys.argv[1])
