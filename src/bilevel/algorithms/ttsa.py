"""TTSA: two-timescale stochastic approximation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bilevel.algorithms.implicit_steps import InnerSteps
from bilevel.algorithms.parts import Parts
from bilevel.algorithms.registry import register
from bilevel.algorithms.truncated import Truncated
from bilevel.arguments import Schedule, at
from bilevel.schedules import decaying
from bilevel.solvers.updates.base import rates_of


@register(
    "ttsa",
    paper="Hong, Wai, Wang & Yang, 2020, Algorithm 1 (TTSA)",
    cost="Gc(f) 2, Gc(g) 1, JV 1, HV uniform on 0, ..., Q - 1",
    demo={
        "inner_lr": decaying(0.5, 0.4),
        "neumann_terms": 20,
        "neumann_lr": 0.3,
        "outer_lr": decaying(0.2, 0.6),
    },
)
@dataclass(frozen=True, kw_only=True)
class TTSA(Truncated):
    """Single-loop and single-sample: one step of y, one of x, on two time scales.

    y_{k+1} = y_k − β_k ∇y G(x_k, y_k), then x_{k+1} = x_k − α_k ∇̂Φ at y_{k+1}, with
    β_k of the order k^(−2/5) and α_k of the order k^(−3/5) (their Theorem 2).

    Args:
        inner_lr: a schedule k -> step of y, or a number; by default 0.1 (k+1)^(−2/5).
        neumann_terms: Q.
        neumann_lr: η, at most 1/L.
        batch: one size for all roles, or sizes by role; single samples by default.
        outer_lr: a schedule; by default 0.1 (k+1)^(−3/5).

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import means
        >>> y_rate, x_rate = (bilevel.schedules.decaying(*r) for r in ((0.5, 0.4), (0.2, 0.6)))
        >>> algorithm = bilevel.algorithms.TTSA(
        ...     inner_lr=y_rate, neumann_terms=5, neumann_lr=0.5, outer_lr=x_rate)
        >>> bool(bilevel.minimize(means(), algorithm, steps=100).x.norm() < 0.5)
        True
    """

    inner_lr: float | Schedule = decaying(0.1, power=2 / 5)

    own = decaying(0.1, power=3 / 5)

    def inner_steps_of(self, ks: range) -> InnerSteps:
        return InnerSteps(np.ones(len(ks), int), rates_of(self.inner_lr, ks)[:, None])

    def parts(self, k: int) -> Parts:
        # One inner step, whose rate depends on the outer step k: y and x share one clock.
        return self.after(1, at(self.inner_lr, k))
