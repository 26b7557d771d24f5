"""D-TFBO: a double loop with self-tuning step sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bilevel.algorithms.contract import State
from bilevel.algorithms.registry import register
from bilevel.algorithms.self_tuning import SelfTuning
from bilevel.algorithms.single_loop import Directions, Told
from bilevel.arguments import Schedule, steps_at
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import CROSS, OUTER, Cost
from bilevel.problem.sampling import Streams
from bilevel.solvers.updates.base import Update


@register(
    "d-tfbo",
    paper="Yang, Ban, Huang, Ma & Ji, ICLR 2025 (D-TFBO)",
    cost="Gc(f) 2, Gc(g) T, JV 1, HV T",
    demo={"inner_steps": 5, "first": 1.0, "batch": 16},
    steps=200,
)
@dataclass(frozen=True, kw_only=True)
class DTFBO(SelfTuning):
    """T steps of y, T of v, one of x; each length from the norms so far (AdaGrad-norm).

        T times:  b² ← b² + ‖∇y g‖²,  y ← y − ∇y g/b
        T times:  c² ← c² + ‖∇²y g v − ∇y f‖²,  v ← v − (∇²y g v − ∇y f)/max(b, c)
        a² ← a² + ‖h‖²,  x ← x − h/(a · max(b, c)),  h = ∇x f − ∇x∇y g v

    The paper's loops end when their gradients are small; like its code, this takes a fixed number
    of steps, so that the cost is known.

    Args:
        inner_steps: T, of y and of v; or a schedule k -> T_k.
        first: the initial b and c; the first step should be no longer than about 1/L.
            None measures L, the largest curvature of g at the start. a begins at 1.
        outer_lr, outer: another way for x to move.
        batch: the rows of every batch, one for each step; None is all rows, as in the paper.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> bilevel.minimize(halves(), bilevel.algorithms.DTFBO(), steps=300).x
        tensor([0.5000, 0.5000])
    """

    inner_steps: int | Schedule = 10

    def updates(self) -> Mapping[str, Update]:
        return {"x": self.moves_x(Told())}

    def directions(self, oracle: Oracle, state: State, streams: Streams) -> Directions:
        x, y, v = state.x, state.y, state.points["v"]
        T = steps_at(self.inner_steps, state.step)
        a2, b2, c2 = state.points["squares"].unbind()
        for rows in streams.batches("inner", self.batch, T):
            g_y = oracle.inner(x, y, rows).gradient()
            b2 = b2 + g_y.square().sum()
            y = y - g_y / b2.sqrt()
        f_x, f_y = oracle.outer(x, y, streams.rows("outer", self.batch)).gradient()
        for rows in streams.batches("hessian", self.batch, T):
            residual = oracle.linearize(x, y, rows).hvp(v) - f_y
            c2 = c2 + residual.square().sum()
            v = v - residual / c2.maximum(b2).sqrt()
        Jv = oracle.linearize(x, y, streams.rows("cross", self.batch)).cross(v)
        h = oracle.pull(x, f_x - Jv)
        a2 = a2 + h.square().sum()
        kept = {"y": y, "v": v, "squares": a2.new_tensor([a2, b2, c2])}
        rate = 1 / float((a2 * c2.maximum(b2)).sqrt())
        return Directions({"x": h}, kept=kept, rates={"x": rate})

    def price(self, k: int) -> Cost:
        T = steps_at(self.inner_steps, k)
        return Cost(*(OUTER + CROSS)) + Cost(gc_g=T, hv=T)
