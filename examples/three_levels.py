"""Three levels: two argmins, one inside the other, and your own loop around them.

    python examples/three_levels.py [plot.png]

A price x is set by someone who anticipates a firm y, which in turn anticipates its buyers z: z(x,
y) = argmin ½z² − z(y − x), y(x) = argmin (y − 2)² − z y + ½y², and x maximises x z. By hand, z =
y − x and y = (4 − x), so x z = x (4 − 2x) is largest at x = 1.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor

import bilevel

ZERO = torch.zeros((), dtype=torch.float64)


def buyers(x: Tensor, y: Tensor) -> Tensor:
    found: Tensor = bilevel.argmin(
        lambda held, z: 0.5 * z**2 - z * (held[1] - held[0]), ZERO, (x, y)
    )
    return found


def firm(x: Tensor) -> Tensor:
    # What z owes to y counts: the buyers are solved inside, at each y that is tried.
    found: Tensor = bilevel.argmin(
        lambda x, y: (y - 2) ** 2 - buyers(x, y) * y + 0.5 * y**2, ZERO, x
    )
    return found


x = torch.tensor(0.0, dtype=torch.float64, requires_grad=True)
optimizer = torch.optim.SGD([x], lr=0.1)
path: list[tuple[float, float, float]] = []
for _ in range(40):
    y = firm(x)
    z = buyers(x, y)
    loss = -x * z
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    path.append((x.item(), y.item(), z.item()))

print("x, y, z:", [round(value, 4) for value in path[-1]])
assert abs(path[-1][0] - 1) < 1e-3, "the closed form"
if len(sys.argv) > 1:
    import matplotlib.pyplot as plt

    plt.plot(path, label=["x, the price", "y, the firm", "z, the buyers"])
    plt.axhline(1, color="gray", linewidth=0.5)
    plt.xlabel("step of x"), plt.legend()
    plt.savefig(sys.argv[1])
