"""What a run gives back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from bilevel.algorithms.state import State
from bilevel.oracles import Counts
from bilevel.problem.problem import Problem
from bilevel.problem.structure import Variables
from bilevel.record import Record
from bilevel.theory.certificates import Certificate, certify


class Status(StrEnum):
    """How a run ended."""

    CONVERGED = "converged"
    STEP_LIMIT = "step_limit"
    TIME_LIMIT = "time_limit"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"
    DIVERGED = "diverged"


@dataclass(frozen=True)
class HistoryRecord(Record):
    """One outer step.

    Args:
        step: its number, from 1.
        seconds: since the start, without evaluation, metrics and callbacks.
        outer_value: f(x, y) on all rows after the step; None where it was not evaluated.
        hypergradient_norm: of the estimate that the step was made with.
        metrics: the user's own, evaluated after the step.
        counts: since the start.
        report: how the step's inner and linear solves went.
    """

    step: int
    seconds: float
    outer_value: float | None
    hypergradient_norm: float
    metrics: dict[str, float]
    counts: Counts
    report: dict[str, Any]


@dataclass(frozen=True)
class Past:
    """What lies behind a run that goes on: give it to `minimize(..., after=...)`.

    Args:
        state: where it stands.
        seconds: that the steps took.
        counts: what they asked of the oracle.
        history: a record for each of them.
    """

    state: State
    seconds: float = 0.0
    counts: Counts = field(default_factory=Counts)
    history: Sequence[HistoryRecord] = ()


@dataclass(frozen=True)
class Result(Record):
    """The end of a run.

    Args:
        x, y: in the user's structures, detached.
        status: how the run ended.
        message: the same in a sentence, with what to try.
        history: a record for each outer step.
        counts: what all steps asked of the oracle.
        seconds: that all steps took, without evaluation, metrics and callbacks.
        state: where the run stands.
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
        """What `minimize(..., after=result.past)` goes on from, with more steps.

        Example:
            >>> import torch, bilevel
            >>> problem = bilevel.Problem(
            ...     outer=lambda x, y: (y**2).sum(), inner=lambda x, y: ((y - x) ** 2).sum(),
            ...     x0=torch.ones(1), y0=torch.zeros(1))
            >>> algorithm = bilevel.algorithms.AIDBiO()
            >>> first = bilevel.minimize(problem, algorithm, steps=3)
            >>> second = bilevel.minimize(problem, algorithm, steps=5, after=first.past)
            >>> whole = bilevel.minimize(problem, algorithm, steps=5)
            >>> bool(second.x == whole.x), len(second.history), second.counts == whole.counts
            (True, 5, True)
        """
        counts = self.history[-1].counts if self.history else self.counts
        return Past(self.state, self.seconds, counts, self.history)

    @property
    def certificate(self) -> Certificate:
        """How stationary the end point is: an upper estimate of ‖∇Φ(x)‖, and what it rests on.

        Computed when it is asked for: the linear system is solved once more on all rows, and the
        problem's constants are estimated at x and y. See `bilevel.certify`.
        """
        return certify(self.problem, self.x, self.y)

    def __str__(self) -> str:
        return f"{self.status} after {self.state.step} steps: {self.message}"


_WHAT = {
    Status.CONVERGED: "The hypergradient's norm {norm:.3g} is at most the tolerance {tol:.3g}.",
    Status.STEP_LIMIT: "All {steps} steps were taken; the hypergradient's norm is {norm:.3g}.",
    Status.TIME_LIMIT: "The time was up after {steps} steps; the hypergradient's norm is "
    "{norm:.3g}.",
    Status.STOPPED: "A callback stopped the run after {steps} steps; the hypergradient's norm is "
    "{norm:.3g}.",
    Status.INTERRUPTED: "The run was interrupted after {steps} steps; the hypergradient's norm is "
    "{norm:.3g}. Go on from its checkpoint, or with minimize(..., after=result.past).",
    Status.DIVERGED: "Step {next} gave values that are not finite; x and y are those of step "
    "{steps}. Try a smaller inner_lr (at most 1/L), outer_lr or neumann_lr, or a stronger ridge "
    "in the inner loss.",
}
_ADVICE = {
    "negative_curvature": "the inner loss is not strongly convex there: add a ridge, or solve "
    "the inner problem further",
    "not_converged": "its tolerance was not reached: allow more steps, loosen the tolerance, or "
    "use a preconditioner",
    "stalled": "its line search found no lower point: the tolerance may be below what rounding "
    "allows (use float64), or a gradient may be wrong (see bilevel.check_hypergradient)",
}


def describe(status: Status, history: list[HistoryRecord], steps: int, tol: float | None) -> str:
    """The message of a result: what happened, and what to try."""
    size = history[-1].hypergradient_norm if history else float("nan")
    sentence = _WHAT[status].format(norm=size, tol=tol, steps=steps, next=steps + 1)
    problems = Counter(
        (part, record.report[f"{part}_status"])
        for record in history
        for part in ("inner", "linear")
        if record.report[f"{part}_status"] in _ADVICE
    )
    notes = [
        f"In {count} of {len(history)} steps the {part} solve ended with {what!r}: {_ADVICE[what]}."
        for (part, what), count in problems.items()
    ]
    return " ".join([sentence, *notes])
