"""A method of your own, in a dozen lines.

A double loop is made of three parts: how y is found, how it is differentiated, how x moves. Name
them in `parts`, and your method runs, counts, checkpoints, resumes and takes any data like the
others. This one uses momentum for y, a Nyström sketch for the linear system, and Adam for x.

What to change: replace any part by another from `bilevel.inner`, `bilevel.linear` or
`bilevel.updates`, or by one that you write. In the library itself a method is one file: see "The
next method in one file".
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import matplotlib.pyplot as plt
import torch

import bilevel
from bilevel.algorithms import AIDBiO, DoubleLoop, Parts


@dataclass(frozen=True, kw_only=True)
class Sketched(DoubleLoop):
    """D steps of momentum, ∇²y g⁻¹ ∇y f by a sketch of `rank` columns, Adam for x."""

    inner_steps: int = 10
    inner_lr: float = 0.05
    rank: int = 5

    def parts(self, k: int) -> Parts:
        return Parts(
            inner=bilevel.inner.Steps(bilevel.updates.Momentum(self.inner_lr), self.inner_steps),
            hypergradient=bilevel.AID(bilevel.linear.Nystrom(self.rank)),
            outer=self.moves_x(bilevel.updates.Adam(0.1)),
        )


generator = torch.Generator().manual_seed(0)
X = torch.randn(120, 8, generator=generator, dtype=torch.float64)
b = X[:, 0] - X[:, 1] + 0.5 * torch.randn(120, generator=generator, dtype=torch.float64)
problem = bilevel.regression_problem(
    (X[:60], b[:60]), (X[60:], b[60:]), penalty=bilevel.PerFeature()
)
methods = {
    "Sketched, rank 5": Sketched(),
    "Sketched, rank 8": Sketched(rank=8),
    "AID-BiO": AIDBiO(inner_steps=10, inner_lr=0.05, cg_steps=8, outer=bilevel.updates.Adam(0.1)),
}
ends = {}
for name, method in methods.items():
    run = bilevel.minimize(problem, method, steps=60)
    ends[name] = run.history[-1].outer_value
    print(f"{name}: f = {ends[name]:.4f}, {run.counts.hv} Hessian-vector products")
    plt.plot([r.step for r in run.history], [r.outer_value for r in run.history], label=name)
assert abs(ends["Sketched, rank 8"] - ends["AID-BiO"]) < 0.01
plt.xlabel("outer step"), plt.ylabel("f(x, y)"), plt.legend()
plt.savefig(sys.argv[1] if len(sys.argv) > 1 else "custom_method.png")
