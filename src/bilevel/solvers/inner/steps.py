"""Inner steps by any update: momentum, Adam, a torch optimiser, a projection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from bilevel.arguments import Count, Flag
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import Cost
from bilevel.problem.sampling import Streams
from bilevel.problem.sources import Rows
from bilevel.solvers.inner.base import InnerSolution, InnerSolver
from bilevel.solvers.updates.base import Look, Memory, Update

_TAKEN = "steps taken"  # kept with the update's memory: where its schedule continues


class Move(NamedTuple):
    """A step to be taken: by which update, which of its steps, on which rows."""

    update: Update
    look: Look
    rows: Rows


@dataclass(frozen=True)
class Steps(InnerSolver):
    """`steps` steps of an update along ∇y G(x, y; S_t), each on a fresh batch S_t.

    ITD differentiates through them if the update has a transpose (descent, momentum, Nesterov,
    Adam); the memory of earlier outer steps is treated as given.

    Args:
        update: one of `bilevel.updates`.
        steps: D.
        batch: S, the rows of a batch; None means all rows.
        keep: whether momentum and the like carry over from one outer step to the next; otherwise
            each outer step starts without.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> inner = bilevel.inner.Steps(bilevel.updates.Momentum(0.1), steps=20, keep=True)
        >>> algorithm = bilevel.algorithms.AIDBiO(inner=inner, cg_steps=10, outer_lr=0.1)
        >>> bilevel.minimize(halves(), algorithm, steps=100).x
        tensor([0.5000, 0.5000])
    """

    update: Update
    steps: Count
    batch: Count | None = None
    keep: Flag = False

    def solve(self, oracle: Oracle, x: Tensor, y: Tensor, streams: Streams) -> InnerSolution:
        return self.go_on(oracle, x, y, streams, {})

    def go_on(
        self, oracle: Oracle, x: Tensor, y: Tensor, streams: Streams, memory: dict[str, Any]
    ) -> InnerSolution:
        known, moves = self.plan(x, y, streams, memory)
        for update, look, rows in moves:
            y, known = update.apply(y, oracle.inner(x, y, rows).gradient(), known, look)
        return self.solution(y, known, moves)

    def plan(
        self, x: Tensor, y: Tensor, streams: Streams, memory: dict[str, Any]
    ) -> tuple[Memory, list[Move]]:
        """What the update remembers at first, and the steps it will take."""
        # A copy to take apart: the memory belongs to the last state.
        known = dict(memory) if self.keep and memory else {_TAKEN: 0, **self.update.init(y)}
        before = known.pop(_TAKEN)
        batches = streams.batches("inner", self.batch, self.steps)
        looks = (Look(before + t, x=x) for t in range(self.steps))
        return known, [
            Move(self.update, look, rows) for look, rows in zip(looks, batches, strict=True)
        ]

    def solution(self, y: Tensor, known: Memory, moves: list[Move]) -> InnerSolution:
        """Where the steps have led."""
        kept = {_TAKEN: moves[-1].look.step + 1, **known} if self.keep else {}
        return InnerSolution(y, steps=len(moves), memory=kept)

    def price(self) -> Cost:
        return Cost(gc_g=self.steps)
