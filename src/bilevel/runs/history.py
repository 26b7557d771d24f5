"""What a run records of each outer step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bilevel.oracles.prices import Counts
from bilevel.record import Record

if TYPE_CHECKING:
    from bilevel.algorithms.contract import Report, State
    from bilevel.problem.problem import Problem


@dataclass(frozen=True)
class HistoryRecord(Record):
    """One outer step.

    Args:
        step: its number, from 1.
        seconds: since the start, without evaluation, metrics and callbacks.
        outer_value: f(x, y) on all rows after the step; None if it was not evaluated.
        hypergradient_norm: of the estimate that the step used; if x is constrained, its projected
            form.
        metrics: the user's own, evaluated after the step.
        counts: of oracle calls since the start.
        report: how the step's solves went, by name: "inner_status", "linear_steps" and so on.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> algorithm = bilevel.algorithms.HOAG(tolerance=0.1)
        >>> first = bilevel.minimize(halves(), algorithm, steps=3).history[0]
        >>> first.step, round(first.hypergradient_norm, 4), first.report["inner_status"]
        (1, 5.6569, 'converged')
    """

    step: int
    seconds: float
    outer_value: float | None
    hypergradient_norm: float
    metrics: dict[str, float]
    counts: Counts
    report: dict[str, Any]


def in_words(report: Report) -> dict[str, str | int | float | None]:
    """How the solves of a step went."""
    return {
        f"{solve.what}_{name}": getattr(solve, name)
        for solve in report.solves
        for name in ("status", "steps", "residual")
    }


def record_of(step: int, seconds: float, report: Report, counts: Counts) -> HistoryRecord:
    """The record of a step, without evaluations."""
    return HistoryRecord(step, seconds, None, report.norm, {}, counts, in_words(report))


@dataclass(frozen=True)
class Past:
    """The past of a run that is to continue: give it to `minimize(..., after=...)`.

    Args:
        state: the current state.
        seconds: how long the steps took.
        counts: of their oracle calls.
        history: a record for each step.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> result = bilevel.minimize(halves(), steps=2)
        >>> past = bilevel.Past(result.state)  # without its history: the counts start at zero
        >>> bilevel.minimize(halves(), steps=4, after=past).state.step
        4
    """

    state: State
    seconds: float = 0.0
    counts: Counts = field(default_factory=Counts)
    history: Sequence[HistoryRecord] = ()


def check_fit(problem: Problem, state: State) -> None:
    """Raise ValueError unless the state fits the problem."""
    sizes, fit = [len(state.x), len(state.y)], [len(problem.x0), len(problem.y0)]
    if sizes != fit:
        raise ValueError(
            f"the state's x and y have {sizes} numbers, the problem's {fit}: continue with the "
            "problem that the state comes from"
        )
