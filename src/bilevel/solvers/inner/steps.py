"""Inner steps by any update: momentum, Adam, a torch optimiser, a projection."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from bilevel.arguments import instance, positive_integer
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import Cost
from bilevel.problem.sampling import Streams
from bilevel.problem.sources import Rows
from bilevel.solvers.inner.base import InnerSolution, InnerSolver, InnerStatus
from bilevel.solvers.updates.base import Look, Memory, Update

_TAKEN = "steps taken"  # kept with the update's memory: where its schedule continues


class Taken(NamedTuple):
    """A step as it was taken: where, with which gradient and memory, on which rows."""

    y: Tensor
    gradient: Tensor
    memory: Memory
    look: Look
    rows: Rows


@dataclass(frozen=True)
class Steps(InnerSolver):
    """`steps` steps of an update along ∇y G(x, y; S_t), each on a fresh batch S_t.

    ITD differentiates through them where the update has a transpose (descent, momentum, Nesterov,
    Adam); the memory of earlier outer steps counts as given.

    Args:
        update: one of `bilevel.updates`.
        steps: D.
        batch: S, the rows of a batch; None is all rows.
        keep: whether momentum and the like carry over from one outer step to the next; else each
            outer step starts without.

    Example:
        >>> import torch, bilevel
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: ((y - 1) ** 2).sum(),
        ...     inner=lambda x, y: ((y - 2 * x) ** 2).sum(),
        ...     x0=torch.zeros(2), y0=torch.zeros(2))
        >>> inner = bilevel.inner.Steps(bilevel.updates.Momentum(0.1), steps=20, keep=True)
        >>> algorithm = bilevel.algorithms.AIDBiO(inner=inner, cg_steps=10, outer_lr=0.1)
        >>> bilevel.minimize(problem, algorithm, steps=100).x
        tensor([0.5000, 0.5000])
    """

    update: Update
    steps: int
    batch: int | None = None
    keep: bool = False

    def __post_init__(self) -> None:
        instance("update", self.update, Update, "bilevel.updates.Momentum(0.1)")
        instance("keep", self.keep, bool, "True or False")
        positive_integer("steps", self.steps)
        if self.batch is not None:
            positive_integer("batch", self.batch)

    @property
    def samples(self) -> bool:
        return self.batch is not None

    def solve(self, oracle: Oracle, x: Tensor, y: Tensor, streams: Streams) -> InnerSolution:
        return self.go_on(oracle, x, y, streams, {})

    def go_on(
        self, oracle: Oracle, x: Tensor, y: Tensor, streams: Streams, memory: dict[str, Any]
    ) -> InnerSolution:
        # The last alone: a list of all steps would hold every iterate.
        last = deque(self.walk(oracle, x, y, streams, memory), maxlen=1)
        return last[0][0]

    def walk(
        self, oracle: Oracle, x: Tensor, y: Tensor, streams: Streams, memory: dict[str, Any]
    ) -> Iterator[tuple[InnerSolution, Taken]]:
        """Step by step: where it stands after a step, and the step as it was taken."""
        # A copy to take apart: the memory belongs to the last state.
        known = dict(memory) if self.keep and memory else {_TAKEN: 0, **self.update.init(y)}
        before = known.pop(_TAKEN)
        for t, rows in enumerate(streams.batches("inner", self.batch, self.steps)):
            look = Look(before + t)
            gradient = oracle.inner(x, y, rows).gradient()
            taken = Taken(y, gradient, known, look, rows)
            y, known = self.update.apply(y, gradient, known, look)
            kept = {_TAKEN: before + t + 1, **known} if self.keep else {}
            yield InnerSolution(y, InnerStatus.STEP_LIMIT, t + 1, memory=kept), taken

    def price(self) -> Cost:
        return Cost(gc_g=self.steps)
