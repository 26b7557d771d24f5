"""What a run gives back."""

from __future__ import annotations

from dataclasses import dataclass, field

from bilevel.algorithms.contract import State
from bilevel.oracles.prices import Counts
from bilevel.problem.problem import Problem
from bilevel.problem.structure import Variables
from bilevel.record import Record
from bilevel.runs.history import HistoryRecord as HistoryRecord
from bilevel.runs.history import Past as Past
from bilevel.runs.status import Status as Status


@dataclass(frozen=True)
class Result(Record):
    """The end of a run.

    Args:
        x, y: in the user's structures, detached. Of a run that converged, the x whose
            hypergradient was found small, and y at that x; of one that diverged, the best point
            that was seen, at worst the start.
        status: how the run ended.
        message: the same in a sentence, with what to try.
        history: a record for each outer step.
        counts: what all steps asked of the oracle.
        seconds: how long all steps took, without evaluation, metrics and callbacks.
        state: where the run stands, and can continue from.
        problem: what was solved.
    """

    x: Variables
    y: Variables
    status: Status
    message: str
    history: list[HistoryRecord]
    counts: Counts
    seconds: float
    state: State
    problem: Problem = field(repr=False)

    @property
    def past(self) -> Past:
        """What `minimize(..., after=result.past)` continues from, with more steps.

        Example:
            >>> import torch, bilevel
            >>> problem = bilevel.Problem(
            ...     outer=lambda x, y: (y**2).sum(), inner=lambda x, y: ((y - x) ** 2).sum(),
            ...     x0=torch.ones(1), y0=torch.zeros(1))
            >>> algorithm = bilevel.algorithms.AIDBiO(outer_lr=0.1)
            >>> first = bilevel.minimize(problem, algorithm, steps=3)
            >>> second = bilevel.minimize(problem, algorithm, steps=5, after=first.past)
            >>> whole = bilevel.minimize(problem, algorithm, steps=5)
            >>> bool(second.x == whole.x), len(second.history), second.counts == whole.counts
            (True, 5, True)
        """
        # Without those of a step that diverged: a run goes on from its last good step.
        counts = self.history[-1].counts if self.history else self.counts
        return Past(self.state, self.seconds, counts, self.history)

    def __str__(self) -> str:
        return f"{self.status} after {len(self.history)} steps: {self.message}"
