"""When a run ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bilevel.arguments import Checked, Count, Positive
from bilevel.runs.history import HistoryRecord, Past
from bilevel.runs.status import EARLY, GROWN, Status


@dataclass(frozen=True)
class Limits(Checked):
    """The limits of a run."""

    steps: Count
    tol: Positive | None
    seconds: Positive | None

    def is_met(self, record: HistoryRecord) -> bool:
        """Whether the estimate of a step is within the tolerance."""
        return self.tol is not None and record.hypergradient_norm <= self.tol

    def is_worth_a_look(self, history: Sequence[HistoryRecord]) -> bool:
        """Whether to verify: at the first small estimate, then the second, fourth, eighth...

        A function of the history alone, so that a resumed run verifies at the same steps.
        """
        if not history or not self.is_met(history[-1]):
            return False
        small = sum(self.is_met(record) for record in history)
        # A power of two: a look may cost as much as many steps, so their number grows slowly.
        return small & (small - 1) == 0

    def reached(self, past: Past) -> Status | None:
        """Which limit ends the run now, if any."""
        if self.seconds is not None and past.seconds >= self.seconds:
            return Status.TIME_LIMIT
        return Status.STEP_LIMIT if past.state.step >= self.steps else None


def divergence(history: Sequence[HistoryRecord]) -> str:
    """A sentence on how the iterates blow up while still finite; empty if they do not.

    The last norm is a million times those of the first steps, and f, if it was evaluated, has risen
    above its first value. A start at the solution is not mistaken for divergence: its noise already
    shows in the first norms.
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
