"""One picture of bilevel optimisation.

On the inside, a curve is fitted to training points with a penalty exp(x) on how much it bends. On
the outside, points that the fit has not seen judge the penalty: Φ(x) is their error. Too small a
penalty fits the noise, too large a one fits nothing; the slope of Φ, the hypergradient, says
which way to go.

What to change: the number of coefficients (`DEGREE`), or use one penalty for each of them
(`x0=torch.zeros(DEGREE)`, and nothing else).
"""

from __future__ import annotations

import sys

import matplotlib.pyplot as plt
import torch
from torch import Tensor

import bilevel

DEGREE = 12
ROUGH = torch.arange(DEGREE, dtype=torch.float64) ** 4 / DEGREE**4  # how much a cosine bends
generator = torch.Generator().manual_seed(3)


def features(t: Tensor) -> Tensor:
    return torch.stack([torch.cos(j * torch.pi * t) for j in range(DEGREE)], dim=1)


def sample(rows: int) -> tuple[Tensor, Tensor]:
    t = torch.rand(rows, generator=generator, dtype=torch.float64)
    noise = 0.35 * torch.randn(rows, generator=generator, dtype=torch.float64)
    return t, torch.sin(2 * torch.pi * t) + noise


def error(y: Tensor, batch: bilevel.Batch) -> Tensor:
    rows, numbers = batch.data
    return ((rows @ y - numbers) ** 2).mean()


(t, b), (t_held, b_held) = sample(16), sample(20)
problem = bilevel.Problem(
    outer=lambda x, y, batch: error(y, batch),
    inner=lambda x, y, batch: error(y, batch) + (x.exp() * ROUGH * y**2).sum(),
    x0=torch.full((1,), 1.0, dtype=torch.float64),
    y0=torch.zeros(DEGREE, dtype=torch.float64),
    inner_data=(features(t), b),
    outer_data=(features(t_held), b_held),
)
result = bilevel.minimize(problem, tol=1e-8)
best, held = float(result.x), bilevel.Batch((features(t_held), b_held), torch.arange(20))
print(f"{result.status} at x = {best:.2f}, a penalty of {result.x.exp().item():.4f}")


def solved(x: float) -> Tensor:
    return bilevel.solve_inner(problem, torch.tensor([x], dtype=torch.float64)).y


grid = torch.linspace(-12, 8, 80, dtype=torch.float64).tolist()
curve = [float(error(solved(x), held)) for x in grid]
assert result.status == "converged"
assert error(solved(best), held) <= min(curve) + 1e-9  # no penalty of the grid is better

figure, (left, right) = plt.subplots(1, 2)
line = torch.linspace(0, 1, 200, dtype=torch.float64)
left.plot(t, b, "o", color="0.4", label="training points")
for x, name in ((-12.0, "too small"), (best, "learned"), (6.0, "too large")):
    left.plot(line, features(line) @ solved(x), label=f"x = {x:.1f}, {name}")
    right.plot(x, float(error(solved(x), held)), "o", color=left.lines[-1].get_color(), zorder=3)
left.set(title="inside: y*(x), a fit with penalty exp(x)", ylim=(-1.9, 2.4))
left.legend(fontsize=8, loc="upper right")
right.plot(grid, curve, color="0.4")
at = torch.tensor([-6.0], dtype=torch.float64)
slope = float(bilevel.hypergradient(problem, at, solved(-6.0)).value)
value = float(error(solved(-6.0), held))
right.plot([-7.5, -4.5], [value - 1.5 * slope, value + 1.5 * slope], "C3", label="slope: ∇Φ")
right.set(title="outside: Φ(x), the error elsewhere", xlabel="x"), right.legend()
figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "what_is_bilevel.png")
