"""SABA against stocBiO: what a table of gradients buys.

A regression is pulled towards x (inner), and x should make it good on other rows (outer). Both
methods see 20 rows at a time. stocBiO draws fresh ones for each inner step and each term of its
Neumann series, and ends in a ball of noise. SABA remembers a gradient for each block of rows
and, like SAGA, keeps descending with constant steps, to the solution itself.

The problem was chosen to show this. With penalties for each feature, or weights for each row, and
rates that were not tuned, SABA's lead in Φ was small or none.

What to change: put another method from `bilevel.algorithms` into `METHODS`; give all of them the
same batch size, and plot against samples, as here, or against `record.seconds`.
"""

from __future__ import annotations

import sys

import matplotlib.pyplot as plt
import torch
from torch import Tensor

import bilevel
from bilevel.algorithms import SABA, StocBiO

generator = torch.Generator().manual_seed(0)


def sample(rows: int, shift: float) -> tuple[Tensor, Tensor]:
    A = torch.randn(rows, 10, generator=generator, dtype=torch.float64)
    noise = torch.randn(rows, generator=generator, dtype=torch.float64)
    return A, A.sum(dim=1) + shift * A[:, 0] + noise


def error(y: Tensor, batch: bilevel.Batch) -> Tensor:
    A, b = batch.data
    return ((A @ y - b) ** 2).mean()


problem = bilevel.Problem(
    outer=lambda x, y, batch: error(y, batch),
    inner=lambda x, y, batch: error(y, batch) + ((y - x) ** 2).sum(),
    x0=torch.zeros(10, dtype=torch.float64),
    y0=torch.zeros(10, dtype=torch.float64),
    inner_data=sample(400, 0.0),
    outer_data=sample(400, 2.0),
)
METHODS = {
    "stocBiO": (
        StocBiO(
            inner_steps=10, inner_lr=0.1, neumann_terms=10, neumann_lr=0.1, batch=20, outer_lr=0.4
        ),
        180,
    ),
    "SABA": (SABA(inner_lr=0.05, outer_lr=0.1, batch=20), 800),
}
best = bilevel.minimize(problem, tol=1e-10)
assert best.status == "converged"

last = {}
for name, (method, steps) in METHODS.items():
    run = bilevel.minimize(
        problem,
        method,
        steps=steps,
        metrics={"distance": lambda x, y: float((x - best.x).norm())},
        evaluate_every=steps // 50,
    )
    seen = [record for record in run.history if record.metrics]
    counts = [record.counts for record in seen]
    samples = [c.gc_f_samples + c.gc_g_samples + c.jv_samples + c.hv_samples for c in counts]
    distances = [record.metrics["distance"] for record in seen]
    last[name] = distances[-1]
    print(f"{name}: {samples[-1]:,} samples, {last[name]:.1e} from the solution")
    plt.semilogy(samples, distances, label=name)
assert last["SABA"] < last["stocBiO"] / 100
plt.xlabel("samples: rows in gradients and products"), plt.ylabel("‖x − x*‖"), plt.legend()
plt.savefig(sys.argv[1] if len(sys.argv) > 1 else "saba_against_stocbio.png")
