"""Dataset distillation: ten pictures, one per class, that suffice to train a classifier.

    python examples/dataset_distillation.py [plot.png]

x holds the pictures, their soft labels and the learning rate; y is a classifier that takes 10 steps
on them from its start; f is its loss on 1,000 digits (Wang, Zhu, Torralba & Efros, 2018).
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
NET = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
first = torch.stack([images[:1000][digits[:1000] == c][0] for c in range(10)])
X0 = {"pictures": first, "labels": 4 * torch.eye(10), "rate": torch.tensor(-2.0)}


def inner(x: dict[str, Tensor], net: nn.Module) -> Tensor:
    return nn.functional.cross_entropy(net(x["pictures"]), x["labels"].softmax(1))


def outer(x: dict[str, Tensor], net: nn.Module, batch: bilevel.Batch) -> Tensor:
    return nn.functional.cross_entropy(net(batch.data[0]), batch.data[1])


def accuracy(x: dict[str, Tensor], net: nn.Module) -> float:
    return float((net(images[1000:]).argmax(1) == digits[1000:]).float().mean())


problem = bilevel.Problem(outer, inner, X0, NET, outer_data=(images[:1000], digits[:1000]))
update = bilevel.updates.Learned(
    bilevel.updates.Momentum(1.0), like=(X0, NET), rate=lambda x: x["rate"].exp()
)
algorithm = bilevel.algorithms.ITDBiO(
    inner=bilevel.inner.Steps(update, steps=10),
    outer=bilevel.updates.Adam(0.03),
    batch=200,
    warm_start=False,  # from NET's own numbers each time
)
result = bilevel.minimize(
    problem, algorithm, steps=150, metrics={"accuracy": accuracy}, evaluate_every=50
)
scores = [record.metrics["accuracy"] for record in result.history if record.metrics]
# The same steps on ten real digits, with their labels.
plain = bilevel.solve_inner(problem, X0, algorithm.inner).y
before = float(
    (torch.func.functional_call(NET, plain, images[1000:]).argmax(1) == digits[1000:])
    .float()
    .mean()
)
print(f"accuracy on other digits: {before:.3f} from ten real ones, {scores[-1]:.3f} distilled")
assert scores[-1] > before + 0.15
if len(sys.argv) > 1:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 10, figsize=(10, 2.4), layout="constrained")
    for row, pictures in zip(axes, (first, result.x["pictures"]), strict=True):
        for axis, picture in zip(row, pictures, strict=True):
            axis.imshow(picture.view(8, 8), cmap="gray")
            axis.set_axis_off()
    figure.suptitle(f"where x starts ({before:.2f}) and ends ({scores[-1]:.2f} right on others)")
    figure.savefig(sys.argv[1])
