"""A run: where it stands, and one step of it."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from bilevel.algorithms.contract import Algorithm, Report, State, Write
from bilevel.durable import interruption
from bilevel.oracles.points import Oracle
from bilevel.oracles.views import Views
from bilevel.problem.problem import Problem
from bilevel.problem.structure import Variables
from bilevel.runs.checkpoints.saved import Best, Ending, Saved
from bilevel.runs.history import HistoryRecord, Past, in_words
from bilevel.runs.limits import Limits, divergence
from bilevel.runs.progress import Callback, Progress, StatefulCallback
from bilevel.runs.result import Result
from bilevel.runs.status import Status, describe
from bilevel.runs.verify import look, outer_value

Metric = Callable[[Variables, Variables], float]
_NEAR = 10  # times the tolerance: beyond this it is a bias, which further steps do not remove


@dataclass(kw_only=True)
class Run:
    """A run: what it is, and where it stands."""

    problem: Problem
    algorithm: Algorithm
    limits: Limits
    seed: int
    callbacks: list[Callback]
    metrics: Mapping[str, Metric]
    evaluate_every: int
    clock: Callable[[], float]
    is_kept: bool

    def __post_init__(self) -> None:
        for function in (*self.callbacks, *self.metrics.values()):
            if not callable(function):
                raise TypeError(f"callbacks and metrics must be functions, got {function!r}")
        self._stateful = [c for c in self.callbacks if isinstance(c, StatefulCallback)]
        # One set of views for the whole run: its tally counts all steps together.
        self._views = Views(self.problem, self.seed)

    def settings(self) -> dict[str, Any]:
        """What decides the steps and the history, besides the problem and the algorithm."""
        return {
            "seed": self.seed,
            "evaluate_every": self.evaluate_every,
            "metrics": self.metrics,
            "callbacks with a memory": [type(c).__qualname__ for c in self._stateful],
        }

    def start(self) -> Past:
        """Before the first step."""
        x0, y0 = self.problem.x0, self.problem.y0
        with self.problem.untouched(self.seed):
            state = self.algorithm.init(self._views.at(0).whole, x0, y0)
        return Past(state, counts=self._views.counts)

    def memories(self) -> tuple[dict[str, Any], ...]:
        """What the callbacks remember, in their order."""
        return tuple(callback.memory() for callback in self._stateful)

    def go_on(self, saved: Saved, start: State) -> Status | None:
        """Resume where a run from this start was saved; how it ended, or None if it goes on."""
        past, self._start = saved.past, start
        _check_fit(self.problem, past.state)
        # The run writes into its tables, but not into those of the state that it was given.
        tables = {name: table.clone() for name, table in past.state.tables.items()}
        self._state = replace(past.state, tables=tables)
        self._seconds, self._history = past.seconds, list(past.history)
        self._views.count_from(past.counts)
        self._ending, self._best = None, saved.best
        for callback, memory in zip(self._stateful, saved.memories, strict=False):
            callback.remember(memory)
        self._mark()
        status = self.limits.reached(past)
        # A run that is called again with wider limits goes on; otherwise its ending stands.
        if saved.ending is not None and saved.ending.stands(self.limits.tol, status is not None):
            self._ending = saved.ending
            return saved.ending.status
        if status is None:
            self._forget_end()
        return status

    def before(self) -> Saved:
        """What goes on from before the step that was broken off, by an error or Ctrl-C."""
        marked, state = self._marked, self._marked.past.state
        tables = {name: table.clone() for name, table in state.tables.items()}
        for write in self._overwritten:
            tables[write.table][write.rows] = write.values
        history = [record for record in self._history if record.step <= state.step]
        past = replace(marked.past, state=replace(state, tables=tables), history=history)
        return replace(marked, past=past)

    def saved(self, status: Status | None = None) -> Saved:
        """What goes on from here, or how it has ended."""
        past = self._past()
        # A step that diverged has no record, but what it asked for was paid.
        counts = self._views.counts if status is Status.DIVERGED else past.counts
        memories = self.memories()
        ending = self._ending or (None if status is None else Ending(status))
        return Saved(replace(past, counts=counts), memories, ending, self._best)

    def advance(self) -> Status | None:
        """One step, its record and its callbacks; how the run has ended, if it has."""
        # Before the step: a request that comes during one waits until all of it is done.
        if self._any(interruption.current().requested):
            return Status.INTERRUPTED
        self._mark()
        x = self._state.x
        report = self._step()
        if report is None:
            return self._diverged(f"Step {self._state.step + 1} gave values that are not finite.")
        # All of them, whatever the first says: each must see every step.
        answers = [callback(self._progress()) for callback in self.callbacks]
        return self._status(x, report, any(_says_stop(answer) for answer in answers))

    def result(self, status: Status) -> Result:
        """What the run gives back."""
        problem, ending = self.problem, self._ending or Ending(status)
        x, y = ending.point or (self._state.x, self._state.y)
        steps = self._state.step
        return Result(
            # Copies: the state stays as it is, whatever is done with x and y.
            x=problem.x_structure.unflatten(x.clone()),
            y=problem.y_structure.unflatten(y.clone()),
            status=status,
            message=describe(status, self._history, steps, self.limits.tol, ending.note),
            history=self._history,
            counts=self._views.counts,
            seconds=self._seconds,
            state=self._state,
            problem=problem,
        )

    def _status(self, x: Tensor, report: Report, stop: bool) -> Status | None:
        """How the step that was just taken, from x, ends the run, if it does."""
        if self._any(stop):
            return Status.STOPPED
        # Before the limits: the last step may be the one that ran away.
        if growth := divergence(self._history):
            return self._diverged(growth)
        status = Status.STALLED if report.stuck else self.limits.reached(self._past())
        if self.limits.is_met(self._history[-1]):
            last = status is not None
            if last or self.limits.is_worth_a_look(self._history):
                return self._look(x, report, last) or status
        return status

    def _diverged(self, how: str) -> Status:
        """The end is the best point that was seen, unless the start is better still."""
        k, start, best = self._state.step, self._start, self._best
        point = start.x, start.y
        if best is not None:
            with self.problem.untouched(self.seed + k):
                oracle = self._views.bare(k)
                # Both with y solved again and on the same rows: else they could not be compared.
                if outer_value(oracle, best.x, best.y) <= outer_value(oracle, *point):
                    point = best.x, best.y
        self._ending = Ending(Status.DIVERGED, None, point, how)
        return Status.DIVERGED

    def _look(self, x: Tensor, report: Report, last: bool) -> Status | None:
        """Whether x is what was asked for: verified, doubted, or None to go on and see."""
        # k is the step just taken: its tasks, and its schedules.
        tol, k = self.limits.tol, self._state.step - 1
        assert tol is not None
        with self.problem.untouched(self.seed + k):
            seen = look(
                self._views.bare(k),
                x,
                self._state.y,
                tol,
                lambda h: self.algorithm.stationarity(x, h, k),
            )
        if not seen.doubt:
            self._ending = Ending(Status.CONVERGED, tol, (x, seen.y))
            return Status.CONVERGED
        # A noisy or slightly wrong estimate may still get there; a biased one will not.
        biased = not report.noisy and seen.norm > _NEAR * tol
        for_good = biased or not math.isfinite(seen.norm)
        if last or for_good:
            self._ending = Ending(Status.DOUBTFUL, tol, (x, self._state.y), seen.doubt, for_good)
            return Status.DOUBTFUL
        return None

    def _any(self, here: bool) -> bool:
        """Whether it is so on any of the processes: all of them must take the same branch."""
        peers = self.problem.peers
        return here if peers.size == 1 else peers.largest(float(here)) > 0

    def _step(self) -> Report | None:
        """Step and write it down; None, and nothing written, if it is not finite."""
        with self.problem.untouched(self.seed + self._state.step):
            start = self.clock()
            view = self._views.at(self._state.step)
            state, report = self.algorithm.step(view, self._state)
            # The slowest process counts for all: a time limit must end them at the same step.
            seconds = self._seconds + self.problem.peers.largest(self.clock() - start)
            # The state before the step is untouched: one that is not finite is simply not taken.
            finite = state.is_finite() and math.isfinite(report.norm)
            record = self._record(view.whole, state, report, seconds) if finite else None
        if record is None:
            return None
        for write in report.writes:  # accepted: now the tables may change
            table = state.tables[write.table]
            self._overwritten.append(replace(write, values=table[write.rows].clone()))
            table[write.rows] = write.values
        self._history.append(record)
        self._state, self._seconds = state, seconds
        return report

    def _record(
        self, seen: Oracle, state: State, report: Report, seconds: float
    ) -> HistoryRecord | None:
        """None if the outer value is not finite."""
        due = self._is_due(state.step) or state.step == self.limits.steps
        value = None
        if due:
            value = float(seen.outer(state.x, state.y).value())  # on the rows that the step saw
            if not math.isfinite(value):
                return None
            if self._is_due(state.step):  # a longer run would not evaluate this last one
                self._keep_best(value, state)
        metrics = {}
        if due and self.metrics:
            x, y = self._variables(state)
            metrics = {name: float(metric(x, y)) for name, metric in self.metrics.items()}
        return HistoryRecord(
            step=state.step,
            seconds=seconds,
            outer_value=value,
            hypergradient_norm=report.norm,
            metrics=metrics,
            counts=self._views.counts,
            report=in_words(report),
        )

    def _keep_best(self, value: float, state: State) -> None:
        if self._best is None or value < self._best.value:
            self._best = Best(value, self._state.x, state.y)  # y belongs to the x before the step

    def _is_due(self, step: int) -> bool:
        return step % self.evaluate_every == 0

    def _forget_end(self) -> None:
        """What was evaluated because it was the last step is not in the history of a longer run."""
        if self._history and not self._is_due(self._history[-1].step):
            self._history[-1] = replace(self._history[-1], outer_value=None, metrics={})

    def _past(self) -> Past:
        # As of the last record: what was asked for since belongs to a step that does not count.
        counts = self._history[-1].counts if self._history else self._views.counts
        return Past(self._state, self._seconds, counts, self._history)

    def _mark(self) -> None:
        """Remember where the run stands, in case that the next step is broken off."""
        # Copies, where it is to be kept: a callback may work on what it remembers in place.
        memories = copy.deepcopy(self.memories()) if self.is_kept else ()
        self._marked = Saved(replace(self._past(), history=()), memories, None, self._best)
        self._overwritten: list[Write] = []

    def _progress(self) -> Progress:
        # The tables of variance reduction are not copied: they may be as large as the data.
        state = self._state.copy()
        x, y = self._variables(state)
        return Progress(self._history[-1], self.limits.steps, x, y, state)

    def _variables(self, state: State) -> tuple[Variables, Variables]:
        """Copies, which a metric or a callback may work on in place."""
        x, y = self.problem.x_structure, self.problem.y_structure
        return x.unflatten(state.x.clone()), y.unflatten(state.y.clone())


def _says_stop(answer: Any) -> bool:
    """True in any of its forms: numpy's, a tensor's, 1."""
    return answer is not None and bool(answer)


def _check_fit(problem: Problem, state: State) -> None:
    sizes, fit = [len(state.x), len(state.y)], [len(problem.x0), len(problem.y0)]
    if sizes != fit:
        raise ValueError(
            f"the state's x and y have {sizes} numbers, the problem's {fit}: continue with the "
            "problem that the state comes from"
        )
