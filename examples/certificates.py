"""Certificates: how far can this x be from a stationary point?

Along a run, `bilevel.certify` bounds ‖∇Φ(x)‖ from what it can measure (inner gradient, residual of
the linear solve) and from constants of the losses. For softmax regression with fixed features these
constants are proven, so the bound holds and is not just an estimate. Here it is plotted next to the
truth, computed from dense matrices.

What to change: `certify(result)` works on every result; for your own losses the constants are
estimated, and `certificate.rigorous` is False.
"""

from __future__ import annotations

import sys

import matplotlib.pyplot as plt
import torch

import bilevel

generator = torch.Generator().manual_seed(0)
X = torch.randn(90, 4, generator=generator, dtype=torch.float64)
labels = (X[:, 0] + 0.5 * torch.randn(90, generator=generator).double() > 0).long()
problem = bilevel.softmax_problem(
    (X[:60], labels[:60]),
    (X[60:], labels[60:]),
    weights=bilevel.SigmoidWeights(),
    penalty=bilevel.Ridge(0.1),
)
method = bilevel.algorithms.AIDBiO(inner_steps=5, inner_lr=0.5, cg_steps=3, outer_lr=5.0)

steps, bounds, truths = [], [], []


def look(progress: bilevel.Progress) -> None:
    if progress.record.step % 10:
        return
    certificate = bilevel.certify(problem, progress.x, progress.y)
    report = bilevel.check_hypergradient(problem, progress.x)  # solved to rounding, dense Hessian
    assert certificate.rigorous
    assert report.truth_norm <= certificate.stationarity
    steps.append(progress.record.step)
    bounds.append(certificate.stationarity)
    truths.append(report.truth_norm)


result = bilevel.minimize(problem, method, steps=300, callbacks=[look])
print(bilevel.certify(result))
print(f"the truth: {truths[-1]:.3g}")

plt.semilogy(steps, bounds, label="certified: ‖∇Φ‖ is at most this")
plt.semilogy(steps, truths, label="truth")
plt.xlabel("outer step"), plt.ylabel("‖∇Φ(x)‖"), plt.legend()
plt.savefig(sys.argv[1] if len(sys.argv) > 1 else "certificates.png")
