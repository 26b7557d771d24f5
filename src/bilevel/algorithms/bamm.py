"""BAMM: SOBA on the inner loss with a vanishing share of the outer one."""

from __future__ import annotations

from dataclasses import dataclass

from bilevel.algorithms.contract import State
from bilevel.algorithms.registry import register
from bilevel.algorithms.single_loop import Directions
from bilevel.algorithms.triple import TripleLoop
from bilevel.arguments import Count, Positive, Schedule, at, positive
from bilevel.oracles.differences import outer_products
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import OUTER, TRIPLE
from bilevel.problem.sampling import Streams
from bilevel.schedules import decaying


@register(
    "bamm",
    paper="Liu, Liu, Yao, Zeng & Zhang, ICML 2023 (BAMM)",
    cost="Gc(f) 6 (four of them for its second derivatives), Gc(g) 1, JV 1, HV 1",
    demo={"inner_lr": 0.3, "outer_lr": 0.1, "share": decaying(0.1, 0.25), "batch": 16},
    steps=400,
    bias="O(μ_k)",
)
@dataclass(frozen=True, kw_only=True)
class BAMM(TripleLoop):
    """SOBA with φ = g + μ_k f in place of g, which makes the inner solution unique.

        y ← y − ρ (∇y g + μ ∇y f),   v ← v − ρ ((∇²y g + μ ∇²y f) v − ∇y f),
        x ← x − γ (∇x f − (∇x∇y g + μ ∇x∇y f) v)

    As μ falls, y tends to the inner solution with the lowest f: g need only be convex. The second
    derivatives of f are differences of its gradients. In the paper's safest schedule γ falls as
    μ⁷; here γ is as given.

    Args:
        share: μ, or a schedule k -> μ_k that falls; in the paper as k^(−1/p).
        inner_lr: ρ, for y and v, at most 1/L of φ; or a schedule.
        outer_lr: γ, or a schedule; by default of the order k^(−1/4).
        batch: the rows of g and of f in a step; None is all rows, as in the paper.
        inner: how y and v move, in place of `inner_lr`; see `SOBA`.

    Example:
        >>> import torch, bilevel
        >>> e = torch.ones(2).double()  # y[2:] is free inside: f decides
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: ((x - y[2:]) ** 2).sum() + ((y[:2] - e) ** 2).sum(),
        ...     inner=lambda x, y: (y[:2] ** 2).sum() / 2 - (x * y[:2]).sum(),
        ...     x0=torch.zeros(2).double(), y0=torch.zeros(4).double())
        >>> algorithm = bilevel.algorithms.BAMM(share=0.1, inner_lr=0.4, outer_lr=0.05)
        >>> result = bilevel.minimize(problem, algorithm, steps=400, evaluate_every=400)
        >>> bool((result.x - e).norm() < 1e-3)
        True
    """

    share: Positive | Schedule = decaying(0.1, 0.25)
    batch: Count | None = None

    asks = TRIPLE + OUTER + OUTER
    own = decaying(0.05, 0.25)

    def directions(self, oracle: Oracle, state: State, streams: Streams) -> Directions:
        x, y, v = state.x, state.y, state.points["v"]
        S, R = streams.rows("inner", self.batch), streams.rows("outer", self.batch)
        mu = positive("share", at(self.share, state.step))
        around = oracle.linearize(x, y, S)
        Hv, Jv = around.both(v)
        f_x, f_y = oracle.outer(x, y, R).gradient()
        # What μ f adds to the second derivatives of g.
        f_Hv, f_Jv = outer_products(oracle, x, y, v, R)
        d_y = around.gradient().add(f_y, alpha=mu)
        d_v = Hv.add(f_Hv, alpha=mu) - f_y
        return Directions({"y": d_y, "v": d_v, "x": oracle.pull(x, f_x - Jv - mu * f_Jv)})
