"""IAPTT: the start of the inner steps is learned, and f is taken at the worst iterate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from bilevel.algorithms.contract import State
from bilevel.algorithms.registry import register
from bilevel.algorithms.single_loop import Directions, SingleLoop
from bilevel.arguments import Positive, Schedule, steps_at
from bilevel.oracles.plans import Retrace, Step, Sweep, Trace, do
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import OUTER, Cost
from bilevel.problem.sampling import Streams
from bilevel.solvers.updates.base import Update
from bilevel.solvers.updates.descent import Descent
from bilevel.solvers.updates.projected import Ball


@register(
    "iaptt",
    paper="Liu, Liu, Zeng & Zhang, NeurIPS 2021 (IAPTT)",
    cost="Gc(f) 2, Gc(g) D, JV and HV k*, the step whose iterate is the worst",
    demo={"inner_steps": 20, "inner_lr": 0.3, "outer_lr": 0.2, "start_lr": 0.1},
    bias="what D steps leave of the learned start, or what the steps after k* would add",
)
@dataclass(frozen=True, kw_only=True)
class IAPTT(SingleLoop):
    """min over x and z of max_k f(x, y_k(x, z)), where y_k are D gradient steps on g from z.

        y_0 = z,  y_k = y_{k−1} − α ∇y g(x, y_{k−1}),  k* = argmax_{k ≥ 1} f(x, y_k)
        x ← x − β ∂f(x, y_{k*})/∂x,   z ← z − ζ ∂f(x, y_{k*})/∂z

    Differentiating through only the first k* steps bounds f at all later iterates; the start z
    moves along the set of inner solutions to one with a low f. z stays in a ball, as in the paper:
    with few steps and no bound it could undo what they do.

    Args:
        inner_steps: D, or a schedule k -> D_k.
        inner_lr: α, at most 1/L.
        start_lr: ζ.
        radius: that of the ball around zero in which z stays.
        outer_lr: β, by default 0.1.
        batch: the rows of g in each inner step, and of f in an outer one; None is all rows, as in
            the paper.

    Example:
        >>> import torch, bilevel
        >>> e = torch.ones(2).double()  # y[2:] is free inside: f decides
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: ((x - y[2:]) ** 2).sum() + ((y[:2] - e) ** 2).sum(),
        ...     inner=lambda x, y: (y[:2] ** 2).sum() / 2 - (x * y[:2]).sum(),
        ...     x0=torch.zeros(2).double(), y0=torch.zeros(4).double())
        >>> algorithm = bilevel.algorithms.IAPTT(inner_lr=0.5, outer_lr=0.3)
        >>> result = bilevel.minimize(problem, algorithm, steps=100, evaluate_every=100)
        >>> bool((result.x - e).norm() < 1e-3)
        True
    """

    inner_steps: int | Schedule = 20
    inner_lr: Positive = 0.1
    start_lr: Positive | Schedule = 0.1
    radius: float = 1e3

    others = "z"

    def updates(self) -> Mapping[str, Update]:
        return {"z": Ball(Descent(self.start_lr), self.radius), "x": self.moves_x(0.1)}

    def directions(self, oracle: Oracle, state: State, streams: Streams) -> Directions:
        x, R = state.x, streams.rows("outer", self.batch)
        batches = streams.batches("inner", self.batch, steps_at(self.inner_steps, state.step))
        steps = [Step(rows, self.inner_lr) for rows in batches]
        path = do(Trace(x, state.points["z"], steps), oracle)
        values = torch.stack([oracle.outer(x, y, R).value() for y in path[1:]])
        worst = int(values.argmax()) + 1
        h, r = oracle.outer(x, path[worst], R).gradient()
        sweep = Sweep(r, torch.zeros_like(r), h)
        sweep = do(Retrace(x, path[:worst], steps[:worst], sweep), oracle)
        # What is left of r after the first step is the derivative by the start.
        d = {"x": oracle.pull(x, sweep.covector), "z": sweep.r}
        return Directions(d, kept={"y": path[-1].clone()})

    def price(self, k: int) -> Cost:
        return Cost(*OUTER) + Cost(gc_g=steps_at(self.inner_steps, k), jv=None, hv=None)
