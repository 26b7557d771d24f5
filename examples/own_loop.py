"""In your own training loop: learn the weight decay of each layer as you train.

Where you call `loss.backward()` for the network, nothing changes. Every 20 steps
`bilevel.backward` adds to the `.grad` of the decays the gradient of the validation loss, through
the training that they influence, and a torch optimiser moves them.

What to change: `decays` can be anything on which your training loss depends: a temperature,
weights of tasks or of sources, the strength of label smoothing.
"""

from __future__ import annotations

import sys

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn

import bilevel

torch.manual_seed(0)
torch.set_num_threads(1)
images, digits = (torch.as_tensor(part) for part in load_digits(return_X_y=True))
images = images.float() / 16
train, held, test = slice(0, 100), slice(100, 500), slice(500, None)
cross_entropy = nn.functional.cross_entropy


def trained(learn: bool) -> tuple[float, list[list[float]]]:
    net = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))
    matrices = [net[0].weight, net[2].weight]
    decays = torch.full((2,), -9.0, requires_grad=True)  # their logarithms

    def training_loss() -> torch.Tensor:
        decay = sum(d.exp() * w.square().sum() for d, w in zip(decays, matrices, strict=True))
        return cross_entropy(net(images[train]), digits[train]) + decay

    inside = torch.optim.Adam(net.parameters(), 0.01)
    outside = torch.optim.Adam([decays], 0.3)
    seen = []
    for step in range(600):
        inside.zero_grad()
        training_loss().backward()
        inside.step()
        if learn and step > 20 and step % 20 == 19:  # y should be near a minimum
            outside.zero_grad()
            bilevel.backward(
                outer_loss=lambda: cross_entropy(net(images[held]), digits[held]),
                inner_loss=training_loss,
                x=[decays],
                y=list(net.parameters()),
                method=bilevel.AID(bilevel.linear.CG(10)),
            )
            outside.step()
            seen.append(decays.tolist())
    with torch.no_grad():
        return float(cross_entropy(net(images[test]), digits[test])), seen


plain, _ = trained(learn=False)
learned, path = trained(learn=True)
print(f"test loss: {plain:.3f} with a fixed decay, {learned:.3f} with learned ones")
assert learned < plain - 0.02

for layer, name in enumerate(("first layer", "last layer")):
    plt.plot(range(40, 601, 20), [row[layer] for row in path], label=name)
plt.xlabel("training step"), plt.ylabel("learned log weight decay"), plt.legend()
plt.savefig(sys.argv[1] if len(sys.argv) > 1 else "own_loop.png")
