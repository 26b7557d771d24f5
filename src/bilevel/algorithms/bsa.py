"""BSA: bilevel stochastic approximation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bilevel.algorithms.implicit_steps import InnerSteps
from bilevel.algorithms.parts import Parts
from bilevel.algorithms.registry import register
from bilevel.algorithms.truncated import Truncated
from bilevel.arguments import Schedule, at
from bilevel.schedules import decaying, increasing, values
from bilevel.solvers.updates.base import rates_of


@register(
    "bsa",
    paper="Ghadimi & Wang, 2018, Algorithm 2 (BSA)",
    cost="Gc(f) 2, Gc(g) ⌈√(k+1)⌉, JV 1, HV uniform on 0, ..., Q - 1",
    demo={
        "inner_lr": decaying(0.3, 0.5),
        "neumann_terms": 20,
        "neumann_lr": 0.3,
        "outer_lr": decaying(0.1, 0.5),
    },
)
@dataclass(frozen=True, kw_only=True)
class BSA(Truncated):
    """Nested and single-sample: t_k inner steps that grow with k, a randomly truncated product.

    Args:
        inner_steps: t_k; by default ⌈√(k+1)⌉.
        inner_lr: a schedule t -> step over the inner steps of one outer step, or a number; by
            default 0.5/(t+1), the order of 2/(μ(t+1)) in their Lemma 3.1.
        neumann_terms: Q.
        neumann_lr: η, at most 1/L (1/L in their paper).
        batch: one size for all roles, or sizes by role; single samples by default.
        outer_lr: a schedule; by default 0.1/√(k+1), the order of their Theorem 3.2.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import means
        >>> faster = bilevel.schedules.decaying(0.5, power=1.0)
        >>> algorithm = bilevel.algorithms.BSA(neumann_terms=5, neumann_lr=0.5, outer_lr=faster)
        >>> bool(bilevel.minimize(means(), algorithm, steps=100).x.norm() < 0.5)
        True
    """

    inner_steps: int | Schedule = increasing(1.0, power=0.5)
    inner_lr: float | Schedule = decaying(0.5, power=1.0)

    def inner_steps_of(self, ks: range) -> InnerSteps:
        counts = values(self.inner_steps, ks).astype(int)
        rates = rates_of(self.inner_lr, range(int(counts.max())))
        return InnerSteps(counts, np.tile(rates, (len(ks), 1)))

    def parts(self, k: int) -> Parts:
        # t_k depends on the outer step k, the rate on the inner step t: it starts afresh each time.
        return self.after(at(self.inner_steps, k), self.inner_lr)
