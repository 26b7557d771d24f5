"""A run: where it stands, and one step of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from bilevel.algorithms.double_loop import DoubleLoop
from bilevel.algorithms.state import State
from bilevel.arguments import positive, positive_integer
from bilevel.durable import interruption
from bilevel.numerics.vectors import norm
from bilevel.oracles import CountingOracle, at_step, make_oracle
from bilevel.problem.problem import Problem
from bilevel.problem.structure import Variables
from bilevel.runs.checkpoints.keeper import Saved
from bilevel.runs.progress import Callback, Progress, StatefulCallback
from bilevel.runs.result import HistoryRecord, Past, Result, Status, describe

Metric = Callable[[Variables, Variables], float]


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

    def reached(self, past: Past) -> Status | None:
        size = past.history[-1].hypergradient_norm if past.history else math.inf
        if self.tol is not None and size <= self.tol:
            return Status.CONVERGED
        if self.seconds is not None and past.seconds >= self.seconds:
            return Status.TIME_LIMIT
        return Status.STEP_LIMIT if past.state.step >= self.steps else None


@dataclass(kw_only=True)
class Run:
    """A run: what it is, and where it stands."""

    problem: Problem
    algorithm: DoubleLoop
    limits: Limits
    seed: int
    callbacks: list[Callback]
    metrics: Mapping[str, Metric]
    evaluate_every: int
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        for function in (*self.callbacks, *self.metrics.values()):
            if not callable(function):
                raise TypeError(f"callbacks and metrics must be functions, got {function!r}")
        self._stateful = [c for c in self.callbacks if isinstance(c, StatefulCallback)]
        self._oracle = CountingOracle(make_oracle(self.problem, self.seed))

    def settings(self) -> dict[str, Any]:
        """What decides the steps and the history, beside the problem and the algorithm."""
        return {
            "seed": self.seed,
            "evaluate_every": self.evaluate_every,
            "metrics": self.metrics,
            "callbacks with a memory": [type(c).__qualname__ for c in self._stateful],
        }

    def start(self) -> Past:
        """Before the first step."""
        x0, y0 = self.problem.x0, self.problem.y0
        return Past(self.algorithm.init(self._oracle, x0, y0), counts=self._oracle.counts)

    def go_on(self, saved: Saved) -> Status | None:
        """Stand where a run was saved; how it has ended, or None if it goes on."""
        past = saved.past
        _check_fit(self.problem, past.state)
        self._state, self._seconds, self._history = past.state, past.seconds, list(past.history)
        self._oracle = CountingOracle(self._oracle.oracle, past.counts)
        self._seen = past.state.step  # by the callbacks
        for callback, memory in zip(self._stateful, saved.memories, strict=False):
            callback.remember(memory)
        if saved.status in (Status.STOPPED, Status.DIVERGED):
            return saved.status
        status = self.limits.reached(past)
        if status is None:
            self._forget_end()
        return status

    @property
    def is_whole(self) -> bool:
        """Whether all that belongs to the last step was done."""
        return self._seen == self._state.step

    def saved(self, status: Status | None = None) -> Saved:
        """What goes on from here, or how it has ended."""
        past = self._past()
        # A Ctrl-C may have come when a record was written, but its step not yet taken.
        history = [record for record in past.history if record.step <= past.state.step]
        counts = self._oracle.counts if status is Status.DIVERGED else past.counts
        memories = tuple(callback.memory() for callback in self._stateful)
        return Saved(replace(past, history=history, counts=counts), memories, status)

    def advance(self) -> Status | None:
        """One step, its record and its callbacks; how the run has ended, if it has."""
        if self._any(interruption.current().requested):
            return Status.INTERRUPTED
        if not self._step():
            return Status.DIVERGED
        answers = [callback(self._progress()) for callback in self.callbacks]
        self._seen = self._state.step
        if self._any(any(answer is True for answer in answers)):
            return Status.STOPPED
        return self.limits.reached(self._past())

    def result(self, status: Status) -> Result:
        state, problem = self._state, self.problem
        return Result(
            x=problem.x_structure.unflatten(state.x.clone()),
            y=problem.y_structure.unflatten(state.y.clone()),
            status=status,
            message=describe(status, self._history, state.step, self.limits.tol),
            history=self._history,
            counts=self._oracle.counts,
            seconds=self._seconds,
            state=state,
            problem=problem,
        )

    def _any(self, here: bool) -> bool:
        """Whether it is so on any of the processes, that all go the same way."""
        return self.problem.peers.largest(float(here)) > 0

    def _step(self) -> bool:
        """Step and write it down; False, and nothing written, if it is not finite."""
        with self.problem.untouched(self.seed + self._state.step):
            start = self.clock()
            state = self.algorithm.step(self._oracle, self._state)
            seconds = self._seconds + self.problem.peers.largest(self.clock() - start)
            record = self._record(state, seconds) if state.is_finite() else None
        if record is None:
            return False
        self._history.append(record)
        self._state, self._seconds = state, seconds
        return True

    def _record(self, state: State, seconds: float) -> HistoryRecord | None:
        """None if the outer value is not finite."""
        assert state.hypergradient is not None
        due = self._is_due(state.step) or state.step == self.limits.steps
        seen = at_step(self._oracle, state.step - 1)  # the rows that the step was made with
        outer_value = float(seen.outer_value(state.x, state.y)) if due else None
        if outer_value is not None and not math.isfinite(outer_value):
            return None
        x, y = self._variables(state)
        metrics = {name: float(metric(x, y)) for name, metric in self.metrics.items() if due}
        return HistoryRecord(
            step=state.step,
            seconds=seconds,
            outer_value=outer_value,
            hypergradient_norm=norm(state.hypergradient),
            metrics=metrics,
            counts=self._oracle.counts,
            report=state.report,
        )

    def _is_due(self, step: int) -> bool:
        return step % self.evaluate_every == 0

    def _forget_end(self) -> None:
        """What was evaluated because it was the last step is not in the history of a longer run."""
        if self._history and not self._is_due(self._history[-1].step):
            self._history[-1] = replace(self._history[-1], outer_value=None, metrics={})

    def _past(self) -> Past:
        counts = self._history[-1].counts if self._history else self._oracle.counts
        return Past(self._state, self._seconds, counts, self._history)

    def _progress(self) -> Progress:
        state = self._state
        x, y = self._variables(replace(state, x=state.x.clone(), y=state.y.clone()))
        return Progress(self._history[-1], self.limits.steps, x, y, state)

    def _variables(self, state: State) -> tuple[Variables, Variables]:
        unflatten_x = self.problem.x_structure.unflatten
        return unflatten_x(state.x), self.problem.y_structure.unflatten(state.y)


def _check_fit(problem: Problem, state: State) -> None:
    sizes, fit = [len(state.x), len(state.y)], [len(problem.x0), len(problem.y0)]
    if sizes != fit:
        raise ValueError(
            f"the state's x and y have {sizes} numbers, the problem's {fit}: go on with the "
            "problem that the state comes from"
        )
