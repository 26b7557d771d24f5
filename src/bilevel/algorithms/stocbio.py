"""stocBiO: the paper's Algorithms 2 and 3."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from bilevel.algorithms.double_loop import DoubleLoop
from bilevel.algorithms.registry import register
from bilevel.algorithms.state import State
from bilevel.arguments import AUTO, Schedule, at
from bilevel.hypergradients.aid import AID
from bilevel.oracles.base import Oracle
from bilevel.problem.sampling import BatchSizes
from bilevel.solvers.inner.base import InnerSolver
from bilevel.solvers.inner.safe_descent import safe_step
from bilevel.solvers.inner.sgd import SGD
from bilevel.solvers.linear.sampled_neumann import SampledNeumann
from bilevel.solvers.updates.outer import AdaGrad
from bilevel.theory import plan_for

_BATCH = 500
_MARGIN = 1.5  # batches whose curvature is not measured may have more of it


@register(
    "stocbio",
    paper="Ji, Yang & Liang, ICML 2021, Algorithms 2 and 3",
    cost="Gc(f) 2, Gc(g) D, JV 1, HV Q",
    demo={
        "inner_steps": 10,
        "inner_lr": 0.3,
        "neumann_terms": 20,
        "neumann_lr": 0.3,
        "batch": 16,
        "outer_lr": 0.1,
    },
)
@dataclass(frozen=True, kw_only=True)
class StocBiO(DoubleLoop):
    """D stochastic gradient steps from the last y, a Neumann series on independent batches.

    Args:
        inner_steps: D, or a schedule k -> D_k.
        inner_lr: α; "auto" is 1/L, with L measured on a batch at each outer step.
        neumann_terms: Q.
        neumann_lr: η, at most 1/L; "auto" is 1/L as well.
        strong_convexity: μ: makes the Hessian batches decay as B·Q·(1 − ημ)^(j−1); None
            makes them equal.
        batch: one size for all roles, or sizes by role: inner (S), outer (D_F),
            hessian (B), cross (D_G). None is all rows; "auto" is 500, or all if there are fewer.
        inner: any solver of `bilevel.inner`, in place of `inner_steps` and `inner_lr`.

    Example:
        >>> import torch, bilevel
        >>> rows = torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y, batch: ((y - batch.data) ** 2).mean(),
        ...     inner=lambda x, y, batch: ((y - x - batch.data) ** 2).mean(),
        ...     x0=torch.ones(2), y0=torch.zeros(2), outer_data=rows, inner_data=rows)
        >>> algorithm = bilevel.algorithms.StocBiO(
        ...     inner_steps=10, inner_lr=0.2, neumann_terms=10, neumann_lr=0.5,
        ...     batch=50, outer_lr=bilevel.schedules.decaying(0.5, 0.5))
        >>> result = bilevel.minimize(problem, algorithm, steps=300, seed=0)
        >>> bool(result.x.norm() < 0.1)  # x* = 0
        True
    """

    inner_steps: int | Schedule = 16
    inner_lr: float | Schedule | str = AUTO
    neumann_terms: int = 16
    neumann_lr: float | str = AUTO
    strong_convexity: float | None = None
    batch: int | Mapping[str, int | None] | BatchSizes | str | None = AUTO
    inner: InnerSolver | None = None

    @classmethod
    def from_theory(cls, problem: Any, epsilon: float) -> StocBiO:
        """The settings of Theorem 3 for a problem: safe, and slow. See `bilevel.theory.plan`."""
        return cls(**plan_for(problem, "stocbio", epsilon).settings)

    def __post_init__(self) -> None:
        if AUTO in (self.inner_lr, self.neumann_lr, self.batch):
            self._with(lr=1.0, sizes=BatchSizes())  # which checks the rest
        else:
            super().__post_init__()

    def settled(self, oracle: Oracle, state: State) -> StocBiO:
        if AUTO not in (self.inner_lr, self.neumann_lr, self.batch):
            return self
        sizes = self._sizes(oracle)
        y = state.y if self.warm_start else state.y0
        rows = oracle.streams(state.step).rows("curvature", sizes.hessian)
        return self._with(safe_step(oracle, state.x, y, rows) / _MARGIN, sizes)

    def inner_solver(self, k: int) -> InnerSolver:
        sizes = BatchSizes.of(self.batch)
        return self.inner or SGD(  # Algorithm 2, lines 4 to 7
            at(self.inner_steps, k), at(self.inner_lr, k), sizes.inner
        )

    def differentiation(self, k: int) -> AID:
        sizes = BatchSizes.of(self.batch)
        return AID(  # Algorithm 2, lines 8 to 12
            SampledNeumann(  # Algorithm 3
                self.neumann_terms,
                self.neumann_lr,  # type: ignore[arg-type]
                sizes.hessian,
                self.strong_convexity,
            ),
            sizes,
        )

    def own_outer(self, k: int) -> AdaGrad:
        return AdaGrad()

    def cost(self, k: int) -> dict[str, int]:
        cost = {"gc_f": 2, "jv": 1}
        if AUTO not in (self.inner_lr, self.neumann_lr):
            cost["hv"] = self.neumann_terms
        return cost if self.inner else {**cost, "gc_g": at(self.inner_steps, k)}

    def _with(self, lr: float, sizes: BatchSizes) -> StocBiO:
        """The same with these numbers for every "auto"."""
        inner_lr = lr if self.inner_lr == AUTO else self.inner_lr
        neumann_lr = lr if self.neumann_lr == AUTO else self.neumann_lr
        batch = sizes if self.batch == AUTO else self.batch
        return replace(self, inner_lr=inner_lr, neumann_lr=neumann_lr, batch=batch)

    def _sizes(self, oracle: Oracle) -> BatchSizes:
        if self.batch != AUTO:
            return BatchSizes.of(self.batch)
        inner, outer = (min(_BATCH, n or _BATCH) for n in (oracle.inner_rows, oracle.outer_rows))
        return BatchSizes(inner=inner, outer=outer, hessian=inner, cross=inner)
