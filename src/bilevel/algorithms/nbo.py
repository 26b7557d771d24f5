"""NBO: the inner Newton step and the adjoint from one block of products."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from bilevel.algorithms.contract import State
from bilevel.algorithms.registry import register
from bilevel.algorithms.single_loop import Directions, SingleLoop
from bilevel.arguments import Count
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import CROSS, GRADIENT, OUTER, Cost
from bilevel.problem.sampling import Streams
from bilevel.solvers.linear.block_cg import block_cg
from bilevel.solvers.updates.base import Update


@register(
    "nbo",
    paper="Fang et al., ICML 2025 (NBO); block CG: O'Leary, 1980",
    cost="Gc(f) 2, Gc(g) 1, JV 1, HV 2N",
    demo={"cg_steps": 3, "outer_lr": 0.2, "batch": 16},
    steps=40,
)
@dataclass(frozen=True, kw_only=True)
class NBO(SingleLoop):
    """y ← y − H⁻¹∇y g and v = H⁻¹∇y f, two columns of one system, by N steps of block CG.

        H (d, v) = (∇y g(x, y), ∇y f(x, y)),  H = ∇²y g(x, y);
        y ← y − d,   x ← x − γ (∇x f(x, y) − ∇x∇y g(x, y) v)

    The two right-hand sides share their Krylov space: each is solved better than by N steps on its
    own. The full Newton step is taken, so y should start where g is nearly quadratic.

    Args:
        cg_steps: N, block steps; each takes two products with H.
        outer_lr: γ, by default 0.1.
        batch: the rows of g and of f in a step; None is all rows.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> bilevel.minimize(halves(), bilevel.algorithms.NBO(), steps=100).x
        tensor([0.5000, 0.5000])
    """

    cg_steps: Count = 10

    others = ""

    def updates(self) -> Mapping[str, Update]:
        return {"x": self.moves_x(0.1)}

    def directions(self, oracle: Oracle, state: State, streams: Streams) -> Directions:
        x, y = state.x, state.y
        around = oracle.linearize(x, y, streams.rows("inner", self.batch))
        f_x, f_y = oracle.outer(x, y, streams.rows("outer", self.batch)).gradient()
        # Together in one space: what one right-hand side learns about H, the other need not.
        both = torch.stack([around.gradient(), f_y], 1)
        d, v = block_cg(around.hvp, both, self.cg_steps).unbind(1)
        h = oracle.pull(x, f_x - around.cross(v))
        return Directions({"x": h}, kept={"y": y - d})

    def price(self, k: int) -> Cost:
        return Cost(*(OUTER + GRADIENT + CROSS)) + Cost(hv=2 * self.cg_steps)
