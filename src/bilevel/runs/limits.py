"""When a run ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bilevel.arguments import positive, positive_integer
from bilevel.runs.history import HistoryRecord, Past
from bilevel.runs.status import EARLY, GROWN, Status


@dataclass(frozen=True)
class Limits:
    """When a run ends at the latest."""

    steps: int
    tol: float | None
    seconds: float | None

    def __post_init__(self) -> None:
        positive_integer("steps", self.steps)
        for name, limit in (("tol", self.tol), ("seconds", self.seconds)):
            if limit is not None:
                positive(name, limit)

    def is_met(self, record: HistoryRecord) -> bool:
        """Whether the estimate of a step is as small as asked."""
        return self.tol is not None and record.hypergradient_norm <= self.tol

    def is_worth_a_look(self, history: Sequence[HistoryRecord]) -> bool:
        """Whether to look closely: at the first small estimate, then the second, fourth, eighth...

        A function of the history alone, so that a resumed run looks where the unbroken one does.
        """
        if not history or not self.is_met(history[-1]):
            return False
        small = sum(self.is_met(record) for record in history)
        # A power of two. A look may cost as much as many steps: their number grows as a logarithm.
        return small & (small - 1) == 0

    def reached(self, past: Past) -> Status | None:
        """Which limit ends the run now, if one does."""
        if self.seconds is not None and past.seconds >= self.seconds:
            return Status.TIME_LIMIT
        return Status.STEP_LIMIT if past.state.step >= self.steps else None


def divergence(history: Sequence[HistoryRecord]) -> str:
    """In a sentence, how numbers blow up while they are still finite; empty if they do not.

    The last norm is a million times what the first steps had, and f, where it was evaluated, has
    risen above its first value. A start at the solution is not mistaken for divergence: its noise
    shows in the first norms already.
    """
    if len(history) <= EARLY:
        return ""
    last, usual = history[-1], max([record.hypergradient_norm for record in history[:EARLY]])
    if not last.hypergradient_norm > GROWN * usual:
        return ""
    values = [record.outer_value for record in history if record.outer_value is not None]
    # A large gradient alone may be a steep stretch on the way down.
    if values and values[-1] <= values[0]:
        return ""
    return (
        f"At step {last.step} the hypergradient's norm is {last.hypergradient_norm:.3g}, and it "
        f"was at most {usual:.3g} in the first {EARLY} steps."
    )
