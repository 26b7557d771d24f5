"""How a run ended, in a word and in a sentence."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from bilevel.problem.streams import Stream

if TYPE_CHECKING:
    from bilevel.algorithms.contract import Report
    from bilevel.problem.problem import Problem
    from bilevel.runs.history import HistoryRecord

EARLY = 10  # steps whose norms count as usual
GROWN = 1e6  # growth by this factor is divergence, or an unbounded descent
_RISEN = 100  # growth by this factor, in however few steps, deserves a word
_SHRUNK = 1e-8  # a hypergradient that fell this far has nothing left to lose but rounding


class Status(StrEnum):
    """How a run ended.

    `CONVERGED` is a promise: accurate solves at the returned x confirmed that its hypergradient is
    as small as requested. `DOUBTFUL` means that the estimate was small enough, but accurate solves
    did not confirm it. `STALLED` means that the method finds no lower Φ any more: x is as good as
    its solves and the precision allow, which may or may not be a solution.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> bilevel.minimize(halves(), tol=1e-5).status is bilevel.Status.CONVERGED
        True
        >>> bilevel.Status.CONVERGED == "converged"
        True
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
    Status.CONVERGED: "The hypergradient's norm {norm} is at most the tolerance {tol}.",
    Status.DOUBTFUL: "The estimated hypergradient's norm {norm} is at most the tolerance "
    "{tol}, but this cannot be trusted.",
    Status.STALLED: "After {steps} steps no lower point is found along the hypergradient, whose "
    "norm is {norm}.",
    Status.STEP_LIMIT: "All {steps} steps were taken; the hypergradient's norm is {norm}.",
    Status.TIME_LIMIT: "The time was up after {steps} steps; the hypergradient's norm is {norm}.",
    Status.STOPPED: "A callback ended the run after {steps} steps; the hypergradient's norm is "
    "{norm}.",
    Status.INTERRUPTED: "The run was interrupted after {steps} steps; the hypergradient's norm is "
    "{norm}. Continue from its checkpoint, or with minimize(..., after=result.past).",
    Status.DIVERGED: "The run diverged after {steps} steps; x and y are the best point that it "
    "saw. Try a smaller inner_lr (at most 1/L), outer_lr or neumann_lr, or a stronger ridge in the "
    "inner loss.",
}
LONG = 0.1  # of the time limit: a step that takes longer needs advice, if it is broken off
_BROKEN_OFF = "Step {step} was broken off"
_TOO_LONG = ": it takes longer than what was left of the time."
_FEW_STEPS = (
    "a few inner steps and ITD, as in ITDBiO(inner=bilevel.inner.Steps(bilevel.updates.Momentum("
    "0.1), 5, keep=True), outer=bilevel.updates.Adam(0.01))"
)
_BOUND = (
    " Allow more seconds, or bound its solves, as in AIDBiO(inner_steps=10, inner_lr=0.1, "
    f"cg_steps=10); for a network take {_FEW_STEPS}."
)
_NOT_CONVEX = (
    " The inner loss curves down in some direction here: it is not strongly convex in y, as with "
    f"most networks. For these take {_FEW_STEPS}, or add a ridge to the inner loss."
)
_RAN_AWAY = (
    " Its inner solve diverged: the inner loss may have no minimum in y, or its steps are too long."
)
_BROKEN_BATCH = " Batch {} of {}, which was read, holds NaN or infinite values."
_AT_REST = (
    "After {steps} steps the estimated hypergradient is exactly zero, so x does not move. This has "
    "not been verified: give tol= for that."
)
_SETTLED = (
    "After {steps} steps no lower point is found: the hypergradient's norm fell from {first} to "
    "{norm}. This has not been verified: give tol= for that."
)
_FALLS_ON = (
    "Φ falls faster and faster, and may have no minimum: add a penalty on x to the outer loss, or "
    "constrain x by bilevel.updates.Projected."
)
_ROSE = (
    "The norm was {first} in the first step, and the outer loss has risen since: the steps may be "
    "too long. Try a smaller outer_lr or inner_lr."
)
UNSEEN = "There was no time left to confirm it: allow more seconds."
ADVICE = {
    "negative_curvature": "the inner loss is not strongly convex there: add a ridge, solve the "
    "inner problem further, or (for a network) differentiate a few steps by ITDBiO",
    "not_converged": "its tolerance was not reached: allow more steps, loosen the tolerance, or "
    "use a preconditioner",
    "too_short": "ITD's sweep back over the inner steps leaves more than a tenth of ∇y f, so that "
    "the hypergradient is biased: take more inner_steps or a larger inner_lr, or AIDBiO",
    "stalled": "its line search found no lower point: the tolerance may be below what rounding "
    "allows (use float64), the loss may have a kink there (|y|, relu: use a smooth form), or a "
    "gradient may be wrong (see bilevel.check_hypergradient)",
}


def broken_off(step: int, long: bool, curved: bool) -> str:
    """The message on a step that the time limit has ended; with advice if it took long.

    Args:
        step: its number.
        long: whether it took long.
        curved: whether the inner loss was seen to curve down.
    """
    advice = _TOO_LONG + (_NOT_CONVEX if curved else _BOUND)
    return _BROKEN_OFF.format(step=step) + (advice if long else ".")


def not_finite(step: int, problem: Problem, report: Report) -> str:
    """The message on a step with values that are not finite."""
    solves = (solve.residual for solve in report.solves if solve.what == "inner")
    away = any(residual is not None and not math.isfinite(residual) for residual in solves)
    streams = [d for d in (problem.inner_data, problem.outer_data) if isinstance(d, Stream)]
    read = [_BROKEN_BATCH.format(d.broken, d.name) for d in streams if d.broken is not None]
    # Values of the data explain more than where they have led.
    known = "".join(read) or _RAN_AWAY * away
    return f"Step {step} gave values that are not finite.{known}"


def describe(
    status: Status, history: Sequence[HistoryRecord], steps: int, tol: float | None, note: str = ""
) -> str:
    """The message of a result: what happened, and what to try."""
    norms = [record.hypergradient_norm for record in history]
    size, first = (f"{norms[k]:.3g}" if norms else "not known yet" for k in (-1, 0))
    asked, sentence = None if tol is None else f"{tol:.3g}", _WHAT[status]
    settled = status is Status.CONVERGED  # by accurate solves: no word of a rough one that was not
    if status is Status.STALLED and tol is None and norms:
        settled = norms[-1] <= _SHRUNK * max(norms[:EARLY])
        sentence = _AT_REST if size == "0" else _SETTLED if settled else sentence
    sentence = sentence.format(norm=size, first=first, tol=asked, steps=steps)
    # Counted over the run: one sentence per kind, not one per step.
    problems = Counter(
        (name.removesuffix("_status"), what)
        for record in history
        for name, what in record.report.items()
        if name.endswith("_status") and what in ADVICE and not (settled and what == "stalled")
    )
    notes = [
        f"In {count} of {len(history)} steps the {part} solve ended with {what!r}: {ADVICE[what]}."
        for (part, what), count in problems.items()
    ]
    fall = _FALLS_ON if _falls_on(history) else ""
    rose = _ROSE.format(first=first) if status is not Status.DIVERGED and _rose(history) else ""
    return " ".join(filter(None, [sentence, note, fall, rose, *notes]))


def _rose(history: Sequence[HistoryRecord]) -> bool:
    """Whether f has risen and the hypergradient grown, perhaps in too few steps for divergence."""
    norms = [record.hypergradient_norm for record in history]
    values = [record.outer_value for record in history if record.outer_value is not None]
    half = max(2, len(norms) // 2)  # the first may be zero: a v that begins there sees nothing
    return len(norms) > half and values[-1:] > values[:1] and norms[-1] > _RISEN * max(norms[:half])


def _falls_on(history: Sequence[HistoryRecord]) -> bool:
    """Whether f has fallen while the hypergradient became far steeper than ever."""
    norms = [record.hypergradient_norm for record in history]
    values = [record.outer_value for record in history if record.outer_value is not None]
    if len(norms) <= EARLY or not values or values[-1] >= values[0]:
        return False
    return norms[-1] == max(norms) > GROWN * max(norms[:EARLY])
