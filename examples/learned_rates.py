"""Learned rates and per-layer weight decay: x holds a rate and a decay for each layer.

    python examples/learned_rates.py [plot.png]

A network trained on few digits overfits. 20 momentum steps are unrolled from the same start at each
outer step, and their rates and decays are learned on other rows (Franceschi et al., 2017; Micaelli
& Storkey, 2021).
"""

from __future__ import annotations

import sys

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import bilevel

torch.set_num_threads(1)
torch.manual_seed(0)
images, digits = (torch.as_tensor(part) for part in load_digits(return_X_y=True))
order = torch.randperm(len(images))
images, digits = images[order].float() / 16, digits[order]
train, valid, test = slice(0, 100), slice(100, 300), slice(300, None)
NET = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
LAYERS = ("0", "2", "4")
X0 = {"rate": torch.full((3,), -4.0), "decay": torch.full((3,), -6.0)}  # both as logarithms


def rate(x: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: x["rate"][LAYERS.index(name[0])].exp() for name, _ in NET.named_parameters()}


def outer(x: dict[str, Tensor], net: nn.Module) -> Tensor:
    return nn.functional.cross_entropy(net(images[valid]), digits[valid])


def inner(x: dict[str, Tensor], net: nn.Module) -> Tensor:
    decay = sum(
        x["decay"][i].exp() * net.get_submodule(layer).weight.square().sum()
        for i, layer in enumerate(LAYERS)
    )
    return nn.functional.cross_entropy(net(images[train]), digits[train]) + decay


def accuracy(x: dict[str, Tensor], net: nn.Module) -> float:
    return float((net(images[test]).argmax(1) == digits[test]).float().mean())


steps = bilevel.inner.Steps(
    bilevel.updates.Learned(bilevel.updates.Momentum(1.0), like=(X0, NET), rate=rate), steps=20
)
path: list[dict[str, Tensor]] = []
result = bilevel.minimize(
    bilevel.Problem(outer, inner, X0, NET),
    bilevel.algorithms.ITDBiO(inner=steps, outer=bilevel.updates.Adam(0.15), warm_start=False),
    steps=40,
    metrics={"accuracy": accuracy},
    callbacks=[lambda progress: path.append({n: t.exp() for n, t in progress.x.items()})],
)
scores = [record.metrics["accuracy"] for record in result.history]
print(f"accuracy {scores[0]:.3f} at first, {scores[-1]:.3f} with learned rates and decays")
print({name: [f"{v:.4f}" for v in value.exp()] for name, value in result.x.items()})
assert scores[-1] > scores[0] + 0.05
if len(sys.argv) > 1:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(11, 3.2), layout="constrained")
    axes[0].plot(scores)
    axes[0].set(xlabel="outer step", ylabel="accuracy on other rows")
    for axis, name in zip(axes[1:], X0, strict=True):
        axis.semilogy([point[name] for point in path], label=["first", "second", "last"])
        axis.set(xlabel="outer step", ylabel=name)
        axis.legend()
    figure.savefig(sys.argv[1])
