"""stocBiO: the paper's Algorithms 2 and 3."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bilevel.algorithms.double_loop import DoubleLoop, Parts
from bilevel.algorithms.implicit_steps import InnerSteps
from bilevel.algorithms.registry import register
from bilevel.arguments import Schedule, at
from bilevel.hypergradients.aid import AID
from bilevel.problem.sampling import AtMost, BatchSizes
from bilevel.schedules import values
from bilevel.solvers.inner.base import InnerSolver
from bilevel.solvers.inner.gradient_descent import SGD
from bilevel.solvers.linear.sampled_neumann import SampledNeumann
from bilevel.solvers.measured import Measured
from bilevel.solvers.updates.adagrad import AdaGrad
from bilevel.solvers.updates.base import rates_of

_BATCH = AtMost(500)
# The batches that are not measured may have more curvature. One object for α and η: solvers that
# ask for equal measurements in one outer step share the result.
_SAFE = Measured(margin=1.5, batch=_BATCH)


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
        inner_lr: α; by default 1/L, with L measured on a batch at each outer step.
        neumann_terms: Q.
        neumann_lr: η, at most 1/L; by default the same measurement.
        strong_convexity: μ: makes the Hessian batches decay as B·Q·(1 − ημ)^(j−1); None
            makes them equal.
        batch: one size for all roles, or sizes by role: inner (S), outer (D_F),
            hessian (B), cross (D_G). None is all rows; by default 500, or all if there are fewer.
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
    inner_lr: float | Schedule | Measured = _SAFE
    neumann_terms: int = 16
    neumann_lr: float | Measured = _SAFE
    strong_convexity: float | None = None
    batch: int | Mapping[str, int | None] | BatchSizes | None = _BATCH
    inner: InnerSolver | None = None

    steady = True

    def inner_steps_of(self, ks: range) -> InnerSteps:
        assert not isinstance(self.inner_lr, Measured)
        counts = values(self.inner_steps, ks).astype(int)
        # One rate for all inner steps of an outer one.
        rates = rates_of(self.inner_lr, ks)[:, None]
        return InnerSteps(counts, rates.repeat(int(counts.max()), axis=1))

    def parts(self, k: int) -> Parts:
        S = BatchSizes.of(self.batch)
        # Algorithm 2, line 3, y_k^0 = y_{k−1}^D, is `DoubleLoop.step`; lines 4 to 12 can be read on
        # one screen in `oracles.plans.Implicit`. Here are their parts.
        # Lines 4 to 7: D steps y ← y − α ∇y G(x, y; S_t), each on its own batch.
        steps = at(self.inner_steps, k)
        inner = self.inner or SGD(steps, _at(self.inner_lr, k), S.inner)
        # Lines 9 and 10, with Algorithm 3: v_Q = η Σ_q Π_j (I − η ∇²y G(x, y; B_j)) v_0, where
        # v_0 = ∇y F(x, y; D_F). With μ, the sizes |B_j| are those of Proposition 3.
        v = SampledNeumann(self.neumann_terms, self.neumann_lr, S.hessian, self.strong_convexity)
        # Lines 11 and 12: ∇̂Φ = ∇x F(x, y; D_F) − ∇x∇y G(x, y; D_G) v_Q. Line 13: x moves along it,
        # by AdaGrad unless told otherwise: a measured step needs estimates without noise.
        return Parts(inner, AID(v, S), self.moves_x(AdaGrad()))


def _at(lr: float | Schedule | Measured, k: int) -> float | Measured:
    # A schedule depends on k here, not on t: one α for all D steps of an outer step.
    return lr if isinstance(lr, Measured) else at(lr, k)
