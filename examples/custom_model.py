"""A model of your own: derivatives that you know better than autograd.

Exponential fits of counts, with a weight for each row: f and g are Poisson losses. The two losses
alone would be enough. A `Model` adds what is known about them, here all derivatives of g in closed
form, and every method uses it. `bilevel.models.conformance` tests such a model against its losses.

What to change: replace the formulas in `Point` by those of your own inner loss.
"""

from __future__ import annotations

import sys
from typing import Any

import matplotlib.pyplot as plt
import torch
from torch import Tensor

import bilevel
from bilevel.oracles import AutogradOracle, Linear

generator = torch.Generator().manual_seed(1)
t = torch.rand(120, generator=generator, dtype=torch.float64)
A = torch.stack([torch.ones_like(t), t], dim=1)
b = torch.poisson((A @ torch.tensor([0.5, 2.0]).double()).exp(), generator=generator)
b[:15] += 25  # counted wrongly


class Point(Linear):
    """g(x, y) = (1/n) Σ_i σ(x_i) (exp(a_i'y) − b_i a_i'y) + ‖y‖²/100, and its derivatives."""

    def __init__(self, x: Tensor, y: Tensor, rows: Tensor) -> None:
        self.x, self.y, self.rows, self.A, self.n = x, y, rows, A[rows], len(rows)
        self.w, self.mean = x[rows].sigmoid() / self.n, (self.A @ y).exp()
        self.losses, self.residual = self.mean - b[rows] * (self.A @ y), self.mean - b[rows]

    def value(self) -> Tensor:
        return self.w @ self.losses + self.y @ self.y / 100

    def gradient(self) -> Tensor:
        return self.A.T @ (self.w * self.residual) + self.y / 50

    def hvp(self, v: Tensor) -> Tensor:
        return self.A.T @ (self.w * self.mean * (self.A @ v)) + v / 50

    def gradient_x(self) -> Tensor:
        return self.by_x(self.losses)

    def cross(self, v: Tensor) -> Tensor:
        return self.by_x(self.residual * (self.A @ v))

    def by_x(self, of_rows: Tensor) -> Tensor:
        slopes = self.w * (1 - self.n * self.w) * of_rows
        return torch.zeros_like(self.x).index_add_(0, self.rows, slopes)


class Oracle(AutogradOracle):  # f, which is asked once a step, stays with autograd
    def linearize(self, x: Tensor, y: Tensor, rows: Tensor | None = None) -> Linear:
        return Point(x, y, torch.arange(80) if rows is None else rows)

    inner = linearize


class Counted(bilevel.Model):
    def oracle(self, problem: Any, seed: int) -> Oracle:
        return Oracle(problem, seed)


def poisson(weights: Tensor | float, y: Tensor, batch: bilevel.Batch) -> Tensor:
    A, b = batch.data
    return (weights * ((A @ y).exp() - b * (A @ y))).mean()


problem = {
    name: bilevel.Problem(
        outer=lambda x, y, batch: poisson(1.0, y, batch),
        inner=lambda x, y, batch: poisson(x[batch.index].sigmoid(), y, batch) + y @ y / 100,
        x0=torch.zeros(80, dtype=torch.float64),
        y0=torch.zeros(2, dtype=torch.float64),
        inner_data=(A[:80], b[:80]),
        outer_data=(A[80:], b[80:]),
        model=model,
    )
    for name, model in (("own", Counted()), ("autograd", None))
}
own, autograd = (bilevel.minimize(each, steps=15) for each in problem.values())
before = bilevel.solve_inner(problem["own"], problem["own"].x0).y
print(f"slope, 2 in truth: {before[1]:.2f} from all rows alike, {own.y[1]:.2f} from weighed rows")
assert torch.allclose(own.x, autograd.x, atol=1e-6)
assert abs(own.y[1] - 2) < abs(before[1] - 2)

plt.scatter(t[:80], b[:80], c=own.x.sigmoid(), cmap="viridis")
plt.colorbar(label="learned weight of the row")
line = torch.linspace(0, 1, 50, dtype=torch.float64)
for name, y in (("all rows alike", before), ("learned weights", own.y)):
    plt.plot(line, (y[0] + y[1] * line).exp(), label=name)
plt.xlabel("t"), plt.ylabel("count"), plt.legend(loc="center right")
plt.savefig(sys.argv[1] if len(sys.argv) > 1 else "custom_model.png")
