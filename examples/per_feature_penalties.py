"""One penalty for each feature, against the best single one.

Of 60 features, 6 decide the class; the others are noise. A grid finds the best single penalty; a
hypergradient moves all 60 at once, switches the noise off and leaves the six alone.

What to change: use your own features and labels, or `bilevel.PerWeight()` for one penalty per
feature and class. A penalty for each feature can overfit the rows that judge it: keep others to
check.
"""

from __future__ import annotations

import sys

import matplotlib.pyplot as plt
import torch
from torch import Tensor

import bilevel

FEATURES, REAL = 60, 6
generator = torch.Generator().manual_seed(0)
truth = torch.zeros(FEATURES, dtype=torch.float64)
truth[:REAL] = torch.tensor([2.0, -2.0, 1.5, -1.5, 1.0, -1.0])


def sample(rows: int) -> tuple[Tensor, Tensor]:
    X = torch.randn(rows, FEATURES, generator=generator, dtype=torch.float64)
    chance = (X @ truth).sigmoid()
    return X, (torch.rand(rows, generator=generator, dtype=torch.float64) < chance).long()


train, validation, test = sample(150), sample(300), sample(5000)
problem = bilevel.logistic_problem(train, validation, penalty=bilevel.PerFeature())


def loss(x: Tensor, rows: tuple[Tensor, Tensor]) -> float:
    """Of the model that is trained with penalties exp(x), on rows of its own or new ones."""
    margin = (2 * rows[1] - 1) * (rows[0] @ bilevel.solve_inner(problem, x).y)[:, 0]
    return float(torch.nn.functional.softplus(-margin).mean())


grid = [torch.full((FEATURES,), float(value)).double() for value in range(-8, 3)]
single = min(grid, key=lambda x: loss(x, validation))
result = bilevel.minimize(problem, steps=40)
print(f"best single penalty: test loss {loss(single, test):.4f}")
print(f"one for each:        test loss {loss(result.x, test):.4f} ({result.status})")
assert loss(result.x, test) < loss(single, test) - 0.01
assert result.x[:REAL].max() < result.x[REAL:].median()

names = ["real" if j < REAL else "noise" for j in range(FEATURES)]
for kind, colour in (("real", "C1"), ("noise", "C0")):
    where = [j for j in range(FEATURES) if names[j] == kind]
    plt.bar(where, result.x[where], color=colour, label=f"{kind} features")
plt.axhline(float(single[0]), color="0.4", linestyle="--", label="best single penalty")
plt.xlabel("feature"), plt.ylabel("learned log penalty"), plt.legend()
plt.savefig(sys.argv[1] if len(sys.argv) > 1 else "per_feature_penalties.png")
