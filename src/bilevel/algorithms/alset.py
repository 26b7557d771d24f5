"""ALSET: alternating stochastic steps on one time scale."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bilevel.algorithms.parts import Parts
from bilevel.algorithms.registry import register
from bilevel.algorithms.truncated import Truncated
from bilevel.arguments import Schedule, at
from bilevel.problem.sampling import BatchSizes
from bilevel.schedules import decaying


@register(
    "alset",
    paper="Chen, Sun & Yin, NeurIPS 2021 (ALSET)",
    cost="Gc(f) 2, Gc(g) D, JV 1, HV uniform on 0, ..., Q - 1",
    demo={
        "inner_steps": 3,
        "inner_lr": decaying(0.5, 0.5),
        "neumann_terms": 10,
        "neumann_lr": 0.3,
        "outer_lr": decaying(0.2, 0.5),
        "batch": 8,
    },
)
@dataclass(frozen=True, kw_only=True)
class ALSET(Truncated):
    """D stochastic steps of y, one of x, both of order 1/√k: without TTSA's two time scales.

        D times:  y ← y − β_k ∇y g(x, y; S_t)
        x ← x − α_k (∇x f − ∇x∇y g · Q η Π_{i=1..p} (I − η ∇²y g(B_i)) ∇y f)

    with p uniform on {0, ..., Q − 1}, and α_k and β_k of the same order.

    Args:
        inner_steps: D, or a schedule k -> D_k.
        inner_lr: a schedule k -> β_k, or a number; by default 0.1 (k+1)^(−1/2).
        neumann_terms: Q.
        neumann_lr: η, at most 1/L.
        batch: one size for all roles, or sizes by role.
        outer_lr: a schedule k -> α_k; by default 0.1 (k+1)^(−1/2).

    Example:
        >>> import torch, bilevel
        >>> rows = torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y, batch: ((y - batch.data) ** 2).mean(),
        ...     inner=lambda x, y, batch: ((y - x - batch.data) ** 2).mean(),
        ...     x0=torch.ones(2), y0=torch.zeros(2), outer_data=rows, inner_data=rows)
        >>> algorithm = bilevel.algorithms.ALSET(
        ...     inner_lr=bilevel.schedules.decaying(0.4, 0.5), neumann_lr=0.5, batch=50,
        ...     neumann_terms=4, outer_lr=bilevel.schedules.decaying(0.3, 0.5))
        >>> result = bilevel.minimize(problem, algorithm, steps=300, seed=0)
        >>> bool(result.x.norm() < 0.2)  # x* = 0
        True
    """

    inner_steps: int | Schedule = 3
    inner_lr: float | Schedule = decaying(0.1, power=0.5)
    batch: int | Mapping[str, int | None] | BatchSizes | None = 64

    def parts(self, k: int) -> Parts:
        # The rate goes by the outer step k: y and x share one clock, and one order.
        return self.after(at(self.inner_steps, k), at(self.inner_lr, k))
