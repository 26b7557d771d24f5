"""How a run ended, in a word and in a sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

from bilevel.runs.history import HistoryRecord


class Status(StrEnum):
    """How a run ended.

    `CONVERGED` is a promise: the x that is returned was looked at with accurate solves, and its
    hypergradient is as small as asked. `DOUBTFUL` says that the estimate was small enough, but
    that look did not confirm it. `STALLED` says that the method finds no lower Φ any more: x is
    as good as its solves and the precision allow, which may be a solution or not.
    """

    CONVERGED = "converged"
    DOUBTFUL = "doubtful"
    STALLED = "stalled"
    STEP_LIMIT = "step_limit"
    TIME_LIMIT = "time_limit"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"
    DIVERGED = "diverged"


_WHAT = {
    Status.CONVERGED: "The hypergradient's norm {norm:.3g} is at most the tolerance {tol:.3g}.",
    Status.DOUBTFUL: "The estimated hypergradient's norm {norm:.3g} is at most the tolerance "
    "{tol:.3g}, but this cannot be trusted.",
    Status.STALLED: "After {steps} steps no lower point is found along the hypergradient, whose "
    "norm is {norm:.3g}.",
    Status.STEP_LIMIT: "All {steps} steps were taken; the hypergradient's norm is {norm:.3g}.",
    Status.TIME_LIMIT: "The time was up after {steps} steps; the hypergradient's norm is "
    "{norm:.3g}.",
    Status.STOPPED: "A callback ended the run after {steps} steps; the hypergradient's norm is "
    "{norm:.3g}.",
    Status.INTERRUPTED: "The run was interrupted after {steps} steps; the hypergradient's norm is "
    "{norm:.3g}. Continue from its checkpoint, or with minimize(..., after=result.past).",
    Status.DIVERGED: "The run diverged after {steps} steps; x and y are the best point that it "
    "saw. Try a smaller inner_lr (at most 1/L), outer_lr or neumann_lr, or a stronger ridge in the "
    "inner loss.",
}
ADVICE = {
    "negative_curvature": "the inner loss is not strongly convex there: add a ridge, or solve "
    "the inner problem further",
    "not_converged": "its tolerance was not reached: allow more steps, loosen the tolerance, or "
    "use a preconditioner",
    "stalled": "its line search found no lower point: the tolerance may be below what rounding "
    "allows (use float64), or a gradient may be wrong (see bilevel.check_hypergradient)",
}


def describe(
    status: Status,
    history: Sequence[HistoryRecord],
    steps: int,
    tol: float | None,
    note: str = "",
) -> str:
    """The message of a result: what happened, and what to try."""
    size = history[-1].hypergradient_norm if history else float("nan")
    sentence = _WHAT[status].format(norm=size, tol=tol, steps=steps)
    # Counted over the run: one sentence for each kind, not one for each step.
    problems = Counter(
        (name.removesuffix("_status"), what)
        for record in history
        for name, what in record.report.items()
        if name.endswith("_status") and what in ADVICE
    )
    notes = [
        f"In {count} of {len(history)} steps the {part} solve ended with {what!r}: {ADVICE[what]}."
        for (part, what), count in problems.items()
    ]
    return " ".join(filter(None, [sentence, note, *notes]))
