"""Meta-Weight-Net: a small network learns how much each row's loss should count.

    python examples/meta_weight_net.py [plot.png]

40 % of the labels of 1,000 digits are wrong. A network is trained on them as they are, and again
with each loss weighted by a small network, a function of the loss, trained on 100 clean rows (Shu
et al., 2019).
"""

from __future__ import annotations

import sys

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import bilevel

STEPS, WRONG = 1000, 0.4
torch.set_num_threads(1)
generator = torch.Generator().manual_seed(0)
images, digits = (torch.as_tensor(part) for part in load_digits(return_X_y=True))
order = torch.randperm(len(images), generator=generator)
images, digits = images[order].float() / 16, digits[order]
noisy = digits[:1000].clone()
flipped = torch.rand(1000, generator=generator) < WRONG
shift = torch.randint(1, 10, (1000,), generator=generator)
noisy[flipped] = (noisy[flipped] + shift[flipped]) % 10

torch.manual_seed(0)
NET = nn.Sequential(nn.Linear(64, 100), nn.BatchNorm1d(100), nn.ReLU(), nn.Linear(100, 10))
WEIGHTS = nn.Sequential(nn.Linear(1, 50), nn.Tanh(), nn.Linear(50, 1), nn.Sigmoid())


def each(net: nn.Module, batch: bilevel.Batch) -> Tensor:
    return nn.functional.cross_entropy(net(batch.data[0]), batch.data[1], reduction="none")


def inner(weights: nn.Module, net: nn.Module, batch: bilevel.Batch) -> Tensor:
    losses = each(net, batch)
    weight = weights(losses.detach()[:, None])[:, 0]
    return (weight * losses).sum() / weight.sum().detach()


def accuracy(weights: nn.Module, net: nn.Module) -> float:
    return float((net.eval()(images[1100:]).argmax(1) == digits[1100:]).float().mean())


def train(outer_lr: float) -> bilevel.Result:
    problem = bilevel.Problem(
        outer=lambda weights, net, batch: each(net, batch).mean(),
        inner=inner,
        x0=WEIGHTS,
        y0=NET,
        inner_data=(images[:1000], noisy),
        outer_data=(images[1000:1100], digits[1000:1100]),
    )
    steps = bilevel.inner.Steps(bilevel.updates.Momentum(0.1), steps=1, batch=100, keep=True)
    algorithm = bilevel.algorithms.ITDBiO(inner=steps, outer=bilevel.updates.Adam(outer_lr))
    return bilevel.minimize(
        problem, algorithm, steps=STEPS, metrics={"accuracy": accuracy}, evaluate_every=50
    )


plain, learned = train(outer_lr=1e-12), train(outer_lr=3e-3)
curves = {
    name: [r.metrics["accuracy"] for r in result.history if r.metrics]
    for name, result in (("all rows alike", plain), ("Meta-Weight-Net", learned))
}
last = {name: sum(curve[-5:]) / 5 for name, curve in curves.items()}
print({name: f"{value:.3f}" for name, value in last.items()})
assert last["Meta-Weight-Net"] > last["all rows alike"] + 0.05
if len(sys.argv) > 1:
    import matplotlib.pyplot as plt

    for name, curve in curves.items():
        plt.plot(range(50, STEPS + 1, 50), curve, label=name)
    plt.xlabel("step"), plt.ylabel("accuracy on clean rows"), plt.legend()
    plt.savefig(sys.argv[1])
