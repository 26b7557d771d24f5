"""BSA: bilevel stochastic approximation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bilevel.algorithms.double_loop import DoubleLoop, Parts
from bilevel.algorithms.implicit_steps import InnerSteps
from bilevel.algorithms.registry import register
from bilevel.arguments import Schedule, at
from bilevel.hypergradients.aid import AID
from bilevel.problem.sampling import BatchSizes
from bilevel.schedules import decaying, increasing, values
from bilevel.solvers.inner.sgd import SGD
from bilevel.solvers.linear.random_truncation import RandomTruncation
from bilevel.solvers.updates.base import rates_of
from bilevel.solvers.updates.descent import Descent

# Single samples are too noisy for steps that measure the curvature of Φ.
_OWN = Descent(decaying(0.1, power=0.5))


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
class BSA(DoubleLoop):
    """Nested and single-sample: t_k inner steps that grow with k, a randomly truncated product.

    Args:
        inner_steps: t_k; by default ⌈√(k+1)⌉.
        inner_lr: a schedule t -> step over the inner steps of one outer step, or a number; by
            default 0.5/(t+1), the order of 2/(μ(t+1)) in their Lemma 3.1.
        neumann_terms: Q.
        neumann_lr: η, at most 1/L (1/L in their paper).
        batch: one size for all roles, or sizes by role; single samples by default.
        outer_lr: a schedule; by default 0.1/√(k+1), the order of their Theorem 3.2.
    """

    inner_steps: int | Schedule = increasing(1.0, power=0.5)
    inner_lr: float | Schedule = decaying(0.5, power=1.0)
    neumann_terms: int = 10
    neumann_lr: float = 0.1
    batch: int | Mapping[str, int | None] | BatchSizes | None = 1

    def inner_steps_of(self, ks: range) -> InnerSteps:
        counts = values(self.inner_steps, ks).astype(int)
        rates = rates_of(self.inner_lr, range(int(counts.max())))
        return InnerSteps(counts, np.tile(rates, (len(ks), 1)))

    def parts(self, k: int) -> Parts:
        sizes = BatchSizes.of(self.batch)
        # t_k depends on the outer step k, the rate on the inner step t: it starts afresh each time.
        inner = SGD(at(self.inner_steps, k), self.inner_lr, sizes.inner)
        v = RandomTruncation(self.neumann_terms, self.neumann_lr, sizes.hessian)
        return Parts(inner, AID(v, sizes), self.moves_x(_OWN))
