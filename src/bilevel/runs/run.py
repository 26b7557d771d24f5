"""A run: its current state, and how it takes a step."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from bilevel.algorithms.contract import Algorithm, Report, State, Write
from bilevel.durable import interruption
from bilevel.errors import quoted
from bilevel.oracles.points import Oracle
from bilevel.oracles.views import Views
from bilevel.problem.problem import Problem
from bilevel.problem.structure import Variables
from bilevel.runs.checkpoints.saved import Best, Ending, Saved
from bilevel.runs.evaluation import Evaluations, Pace, number
from bilevel.runs.history import Past, check_fit, record_of
from bilevel.runs.limits import Limits, divergence
from bilevel.runs.progress import Callback, Progress, StatefulCallback, says_stop
from bilevel.runs.result import Result
from bilevel.runs.status import LONG, UNSEEN, Status, broken_off, describe, not_finite
from bilevel.runs.stopwatch import OutOfTimeError, Stopwatch
from bilevel.runs.verify import curves_down, look, lower

Metric = Callable[[Variables, Variables], float]
_NEAR = 10  # times the tolerance: beyond this it is a bias, which further steps do not remove


@dataclass(kw_only=True)
class Run:
    """A run: its settings and its current state."""

    problem: Problem
    algorithm: Algorithm
    limits: Limits
    seed: int
    callbacks: list[Callback]
    metrics: Mapping[str, Metric]
    evaluate_every: int | None
    clock: Callable[[], float]
    is_kept: bool

    def __post_init__(self) -> None:
        for function in (*self.callbacks, *self.metrics.values()):
            if not callable(function):
                raise TypeError(f"callbacks and metrics must be functions, got {quoted(function)}")
        self._stateful = [c for c in self.callbacks if isinstance(c, StatefulCallback)]
        self._watch = watch = Stopwatch(self.clock, self.limits.seconds, self.problem.peers)
        self._views = Views(self.problem, self.seed, watch=watch.watcher)
        self._evaluations = Evaluations(self.evaluate_every, self._views.oracle)
        # Callbacks need each step; of several processes, only one may have them.
        single = self.callbacks or self.problem.tasks or self.problem.peers.size > 1
        by_steps = single or not self.algorithm.stretches
        self._pace = None if by_steps else Pace.between(self.evaluate_every, watch)

    def settings(self) -> dict[str, Any]:
        """What determines the steps and the history, besides the problem and the algorithm."""
        return {
            "seed": self.seed,
            "evaluate_every": self.evaluate_every or 1,
            "metrics": self.metrics,
            "callbacks with a memory": [type(c).__qualname__ for c in self._stateful],
        }

    def start(self) -> Past:
        """The state before the first step."""
        x0, y0 = self.problem.x0, self.problem.y0
        with self.problem.untouched(self.seed):
            state = self.algorithm.init(self._views.at(0).whole, x0, y0)
        return Past(state, counts=self._views.counts)

    def memories(self) -> tuple[dict[str, Any], ...]:
        """The memories of the callbacks, in order."""
        return tuple(callback.memory() for callback in self._stateful)

    def go_on(self, saved: Saved, start: State) -> Status | None:
        """Resume a run from what was saved; return how it ended, or None if it continues."""
        past, self._start = saved.past, start
        check_fit(self.problem, past.state)
        # The run writes into its tables, but not into those of the given state.
        self._state = past.state.with_own_tables()
        self._watch.spent, self._history = past.seconds, list(past.history)
        self._counts = past.counts
        self._views.count_from(past.counts)
        self._ending, self._best = None, saved.best
        for callback, memory in zip(self._stateful, saved.memories, strict=False):
            callback.remember(memory)
        self._mark()
        status, end = self.limits.reached(past), saved.ending
        # With wider limits a run continues; otherwise its ending stands.
        if end is not None and end.stands(self.limits.tol, status):
            self._ending = end
            return end.status
        if status is None:
            self._forget_end()
            if end is not None and end.point and end.unseen and end.tol == self.limits.tol:
                return self._look(end.point[0], end.noisy, last=False)
        return status

    def before(self) -> Saved:
        """The run before the step that an error or Ctrl-C has interrupted."""
        marked, state = self._marked, self._marked.past.state.with_own_tables()
        for write in self._overwritten:
            state.tables[write.table][write.rows] = write.values
        history = [record for record in self._history if record.step <= state.step]
        past = replace(marked.past, state=state, history=history)
        return replace(marked, past=past)

    def saved(self, status: Status | None = None) -> Saved:
        """The run as it is now, with its ending if it has ended."""
        past = self._past()
        # A step that diverged has no record, but its oracle calls count.
        counts = self._views.counts if status is Status.DIVERGED else past.counts
        ending = self._ending or (None if status is None else Ending(status))
        return Saved(replace(past, counts=counts), self.memories(), ending, self._best)

    def advance(self) -> Status | None:
        """Take a step, record it, and call the callbacks; return how the run ended, if it did."""
        # Before the step: a request during a step waits until it is done.
        if self.problem.peers.any(interruption.current().requested):
            return Status.INTERRUPTED
        self._mark()
        try:
            at = self._state.step, self.limits.steps
            taken = self._pace.take(self._taken, *at) if self._pace else self._taken(1)
        except OutOfTimeError:
            return self._broken_off()
        if taken is None:
            return self._diverged(not_finite(self._state.step + 1, self.problem, self._lost))
        # All of them, whatever the first returns: each must see every step.
        answers = [callback(self._progress()) for callback in self.callbacks]
        return self._status(*taken, any(says_stop(answer) for answer in answers))

    def result(self, status: Status) -> Result:
        """What the run returns."""
        problem, ending, steps = self.problem, self._ending or Ending(status), self._state.step
        x, y = ending.point or (self._state.x, self._state.y)
        return Result(
            # Copies: the state stays the same, whatever is done to x and y.
            x=problem.x_structure.unflatten(x.clone()),
            y=problem.y_structure.unflatten(y.clone()),
            status=status,
            message=describe(status, self._history, steps, self.limits.tol, ending.note),
            history=self._history,
            counts=self._views.counts,
            seconds=self._watch.spent,
            state=self._state,
            problem=problem,
        )

    def _status(self, x: Tensor, report: Report, stop: bool) -> Status | None:
        """How the step just taken from x ends the run, if it does."""
        if self.problem.peers.any(stop):
            return Status.STOPPED
        if not self._history or self._history[-1].step < self._state.step:
            return self._amid_a_stretch(report)
        # Before the limits: the last step may be the one that ran away.
        if growth := "" if self.algorithm.descends else divergence(self._history):
            return self._diverged(growth)
        status = Status.STALLED if report.stuck else self.limits.reached(self._past())
        if self.limits.is_met(self._history[-1]):
            last = status is not None
            if last or self.limits.is_worth_a_look(self._history):
                return self._look(x, report.noisy, last) or status
        return status

    def _amid_a_stretch(self, report: Report) -> Status | None:
        """Within a stretch only the clock can end the run; its last step then gets a record."""
        if (status := self.limits.reached(past := self._past())) is not None:
            self._history.append(record_of(past.state.step, past.seconds, report, past.counts))
        return status

    def _broken_off(self) -> Status:
        """Out of time during a step: the run ends in the state before it."""
        state, lost = self._state, self._watch.spent - self._marked.past.seconds
        self._views.count_from(self._marked.past.counts)
        long, down = lost > LONG * (self.limits.seconds or 0.0), False
        with suppress(OutOfTimeError), self._aside(state.step) as oracle:
            down = long and curves_down(oracle, state.x, state.y)
        self._ending = Ending(Status.TIME_LIMIT, note=broken_off(state.step + 1, long, down))
        return Status.TIME_LIMIT

    def _diverged(self, how: str) -> Status:
        """The run ends at the best point that was seen, unless the start is better."""
        k, start, best = self._state.step, self._start, self._best
        point = start.x, start.y
        if best is not None:
            try:
                with self._aside(k) as oracle:
                    point = lower(oracle, (best.x, best.y), point)
            except OutOfTimeError:
                point = best.x, best.y
        self._ending = Ending(Status.DIVERGED, None, point, how)
        return Status.DIVERGED

    @contextmanager
    def _aside(self, k: int) -> Iterator[Oracle]:
        """The oracle of step k for work outside the method, which may raise OutOfTimeError."""
        with self.problem.untouched(self.seed, k, self._state.buffers), self._watch.aside():
            yield self._views.bare(k)

    def _look(self, x: Tensor, noisy: bool, last: bool) -> Status | None:
        """Whether x meets the tolerance: converged, doubtful, or None to continue."""
        tol, y = self.limits.tol, self._state.y
        k = self._state.step - 1  # the step just taken: its tasks, and its schedules
        assert tol is not None
        try:
            with self._aside(k) as oracle:
                seen = look(oracle, x, y, tol, lambda h: self.algorithm.stationarity(x, h, k))
        except OutOfTimeError:
            self._ending = Ending(
                Status.DOUBTFUL, tol, (x, y), UNSEEN, for_good=False, unseen=True, noisy=noisy
            )
            return Status.DOUBTFUL
        if not seen.doubt:
            self._ending = Ending(Status.CONVERGED, tol, (x, seen.y))
            return Status.CONVERGED
        # A noisy or slightly inaccurate estimate may still get there; a biased one will not.
        biased = not noisy and seen.norm > _NEAR * tol
        for_good = biased or not math.isfinite(seen.norm)
        if last or for_good:
            self._ending = Ending(Status.DOUBTFUL, tol, (x, y), seen.doubt, for_good)
            return Status.DOUBTFUL
        return None

    def _taken(self, count: int) -> tuple[Tensor, Report] | None:
        """Take `count` steps; return the x before the last, or None if one is not finite."""
        with self.problem.untouched(self.seed, self._state.step, self._state.buffers):
            view = self._views.at(self._state.step)
            with self._watch.step():
                if self._pace is None:
                    (state, report), x = self.algorithm.step(view, self._state), self._state.x
                else:
                    state, report, x = self.algorithm.stretch(view.whole, self._state, count)
            state = replace(state, buffers=self.problem.buffers_now())
            # The previous state is untouched: a state that is not finite is simply dropped.
            finite = state.is_finite() and math.isfinite(report.norm)
            if not finite or not self._note(view.whole, x, state, report):
                if count > 1:  # they are retried, fewer at a time: a single step counts
                    self._views.count_from(self._counts)
                self._lost = report
                return None
        for write in report.writes:  # the step is accepted: now the tables may change
            table = state.tables[write.table]
            self._overwritten.append(replace(write, values=table[write.rows].clone()))
            table[write.rows] = write.values
        self._state, self._counts = state, self._views.counts
        return x, report

    def _note(self, seen: Oracle, x: Tensor, state: State, report: Report) -> bool:
        """Record the step, unless within a stretch; False if the outer value is not finite."""
        due = (regular := self._is_due(state.step)) or state.step == self.limits.steps
        if self._pace is not None and not due:
            return True
        value, metrics = None, {}
        if due:
            value = float(seen.outer(state.x, state.y).value())  # on the rows of the step
            if not math.isfinite(value):
                return False
            better = self._best is None or value < self._best.value
            if better and regular:  # a longer run would not evaluate here
                self._best = Best(value, x, state.y)  # y belongs to the x before the step
        if due and self.metrics:  # copies, which a metric may modify
            at = self.problem.modules(state.x, state.y, state.buffers)
            metrics = {name: number(name, metric(*at)) for name, metric in self.metrics.items()}
        record = record_of(state.step, self._watch.spent, report, self._views.counts)
        self._history.append(replace(record, outer_value=value, metrics=metrics))
        return True

    def _is_due(self, step: int) -> bool:
        return self._evaluations.is_due(step, self._history)

    def _forget_end(self) -> None:
        """Drop what was evaluated only at the last step: the history of a longer run lacks it."""
        if self._history and not self._is_due(self._history[-1].step):
            last = self._history.pop()
            if self._pace is None:  # a stretch has no record of that step at all
                self._history.append(replace(last, outer_value=None, metrics={}))

    def _past(self) -> Past:
        # As of the last accepted step: one that was interrupted does not count.
        return Past(self._state, self._watch.spent, self._counts, self._history)

    def _mark(self) -> None:
        """Remember the current state, in case the next step is interrupted."""
        # Copies, if there are checkpoints: a callback may modify its memory in place.
        memories = copy.deepcopy(self.memories()) if self.is_kept else ()
        self._marked = Saved(replace(self._past(), history=()), memories, None, self._best)
        self._overwritten: list[Write] = []

    def _progress(self) -> Progress:
        state = self._state.copy()
        at = self.problem.modules(state.x, state.y, state.buffers)
        return Progress(copy.deepcopy(self._history[-1]), self.limits.steps, *at, state)
