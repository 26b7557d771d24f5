"""AmIGO: stocBiO with v warm-started from the last one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bilevel.algorithms.double_loop import DoubleLoop, Parts
from bilevel.algorithms.registry import register
from bilevel.arguments import Schedule, at
from bilevel.hypergradients.aid import AID
from bilevel.problem.sampling import BatchSizes
from bilevel.solvers.inner.gradient_descent import SGD
from bilevel.solvers.linear import sgd as linear_sgd
from bilevel.solvers.updates.descent import Descent

_OWN = Descent(0.1)


@register(
    "amigo",
    paper="Arbel & Mairal, ICLR 2022 (AmIGO)",
    cost="Gc(f) 2, Gc(g) D, JV 1, HV M (M - 1 at the first step)",
    demo={
        "inner_steps": 5,
        "inner_lr": 0.3,
        "linear_steps": 5,
        "linear_lr": 0.3,
        "outer_lr": 0.1,
        "batch": 16,
    },
)
@dataclass(frozen=True, kw_only=True)
class AmIGO(DoubleLoop):
    """D stochastic steps from the last y, M from the last v: no series, and none of its bias.

        D times:  y ← y − α ∇y g(x, y; S_t)
        M times:  v ← v − η (∇²y g(x, y; B_t) v − ∇y f(x, y; T))
        x ← x − β (∇x f(x, y; T) − ∇x∇y g(x, y; C) v)

    Args:
        inner_steps: D, or a schedule k -> D_k.
        inner_lr: α, at most 1/L; or a schedule k -> α_k.
        linear_steps: M.
        linear_lr: η, at most 1/L; None is α.
        outer_lr: β, by default 0.1.
        batch: one size for all roles, or sizes by role: inner (S), outer (T), hessian (B), cross
            (C). None is all rows.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> algorithm = bilevel.algorithms.AmIGO(inner_lr=0.25, outer_lr=0.1, batch=None)
        >>> bilevel.minimize(halves(), algorithm, steps=100).x
        tensor([0.5000, 0.5000])
    """

    inner_steps: int | Schedule = 10
    inner_lr: float | Schedule = 0.1
    linear_steps: int = 10
    linear_lr: float | None = None
    batch: int | Mapping[str, int | None] | BatchSizes | None = 64

    steady = True

    def parts(self, k: int) -> Parts:
        sizes, alpha = BatchSizes.of(self.batch), at(self.inner_lr, k)
        inner = SGD(at(self.inner_steps, k), alpha, sizes.inner)
        eta = alpha if self.linear_lr is None else self.linear_lr
        v = linear_sgd.SGD(self.linear_steps, eta, sizes.hessian)
        # Their point: v is carried over like y, so few steps suffice and no term is cut off.
        return Parts(inner, AID(v, sizes), self.moves_x(_OWN), warm_v=True)
