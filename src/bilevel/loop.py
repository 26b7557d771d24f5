"""The loop over outer steps."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from bilevel.algorithms.double_loop import DoubleLoop
from bilevel.algorithms.state import State
from bilevel.arguments import instance, natural, positive, positive_integer
from bilevel.linear.base import norm
from bilevel.oracles import CountingOracle, at_step, make_oracle
from bilevel.problem import Problem
from bilevel.result import HistoryRecord, Result, Status, describe
from bilevel.structure import Variables

Metric = Callable[[Variables, Variables], float]


@dataclass(frozen=True)
class Progress:
    """What a callback sees after an outer step.

    Args:
        record: the step's record.
        steps: how many steps the run will take at most.
        x, y: copies of the variables, in the user's structures.
        state: all of it; do not write into it.
    """

    record: HistoryRecord
    steps: int
    x: Variables
    y: Variables
    state: State


Callback = Callable[[Progress], bool | None]


def minimize(
    problem: Problem,
    algorithm: DoubleLoop,
    *,
    steps: int = 100,
    seed: int = 0,
    callbacks: Iterable[Callback] = (),
    metrics: Mapping[str, Metric] | None = None,
    tol: float | None = None,
    seconds: float | None = None,
    evaluate_every: int = 1,
    state: State | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Result:
    """Minimise Φ(x) = f(x, y*(x)).

    Args:
        problem: the two losses, their data and the start.
        algorithm: one of `bilevel.algorithms`.
        steps: K, the number of outer steps in all.
        seed: of all random choices. The same seed gives the same bits.
        callbacks: called with a `Progress` after each outer step; one that returns True stops
            the run.
        metrics: functions of x and y by name, for the history.
        tol: stop when the estimated hypergradient's norm is at most this.
        seconds: stop when the steps have taken this long, evaluation excluded.
        evaluate_every: evaluate f and the metrics at every so-maniest step, and at the last.
        state: go on from the end of an earlier run (`result.state`), with the same seed.
        clock: what tells the seconds. `time.process_time` counts those of the processor, on all
            threads: other programs on the machine then do not matter.

    Returns:
        A `Result`. A run that fails to converge is not an error: see its status and message.

    Example:
        >>> import torch, bilevel
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: ((y - 1) ** 2).sum(),
        ...     inner=lambda x, y: ((y - 2 * x) ** 2).sum(),
        ...     x0=torch.zeros(2), y0=torch.zeros(2))
        >>> algorithm = bilevel.algorithms.AIDBiO(inner_steps=20, inner_lr=0.25, outer_lr=0.1)
        >>> result = bilevel.minimize(problem, algorithm, steps=100, tol=1e-3)
        >>> result.x, str(result.status)
        (tensor([0.5000, 0.5000]), 'converged')
    """
    instance("problem", problem, Problem, "bilevel.Problem(...)")
    instance("algorithm", algorithm, DoubleLoop, "bilevel.algorithms.AIDBiO()")
    positive_integer("steps", steps)
    positive_integer("evaluate_every", evaluate_every)
    for name, limit in (("tol", tol), ("seconds", seconds)):
        if limit is not None:
            positive(name, limit)
    instance("metrics", metrics or {}, Mapping, "{'name': function of x and y}")
    instance("callbacks", callbacks, Iterable, "[function of a Progress]")
    callbacks = list(callbacks)
    for function in (*callbacks, *(metrics or {}).values()):
        if not callable(function):
            raise TypeError(f"callbacks and metrics must be functions, got {function!r}")
    oracle = CountingOracle(make_oracle(problem, natural("seed", seed)))
    state = state or algorithm.init(oracle, problem.x0, problem.y0)
    _check_fit(problem, state)
    run = _Run(problem, steps, metrics or {}, evaluate_every)

    status = Status.STEP_LIMIT
    while state.step < steps:
        with problem.untouched(seed + state.step):
            start = clock()
            proposed = algorithm.step(oracle, state)
            run.seconds += clock() - start
            if not proposed.is_finite() or not run.record(oracle, proposed):
                status = Status.DIVERGED
                break
            state = proposed
        answers = [callback(run.progress(state)) for callback in callbacks]
        if any(answer is True for answer in answers):
            status = Status.STOPPED
            break
        if tol is not None and run.history[-1].hypergradient_norm <= tol:
            status = Status.CONVERGED
            break
        if seconds is not None and run.seconds >= seconds:
            status = Status.TIME_LIMIT
            break

    return Result(
        x=problem.x_structure.unflatten(state.x.clone()),
        y=problem.y_structure.unflatten(state.y.clone()),
        status=status,
        message=describe(status, run.history, state.step, tol),
        history=run.history,
        counts=oracle.counts,
        state=state,
        problem=problem,
    )


def _check_fit(problem: Problem, state: State) -> None:
    sizes, fit = [len(state.x), len(state.y)], [len(problem.x0), len(problem.y0)]
    if sizes != fit:
        raise ValueError(
            f"the state's x and y have {sizes} numbers, the problem's {fit}: go on with the "
            "problem that the state comes from"
        )


class _Run:
    """The history of a run, and its clock."""

    def __init__(
        self, problem: Problem, steps: int, metrics: Mapping[str, Metric], evaluate_every: int
    ) -> None:
        self.problem, self.steps = problem, steps
        self.metrics, self.evaluate_every = metrics, evaluate_every
        self.history: list[HistoryRecord] = []
        self.seconds = 0.0

    def record(self, oracle: CountingOracle, state: State) -> bool:
        """Write the step down; False, and nothing written, if its outer value is not finite."""
        assert state.hypergradient is not None
        due = state.step % self.evaluate_every == 0 or state.step == self.steps
        seen = at_step(oracle, state.step - 1)  # the rows that the step was made with
        outer_value = float(seen.outer_value(state.x, state.y)) if due else None
        if outer_value is not None and not math.isfinite(outer_value):
            return False
        x, y = self._variables(state)
        self.history.append(
            HistoryRecord(
                step=state.step,
                seconds=self.seconds,
                outer_value=outer_value,
                hypergradient_norm=norm(state.hypergradient),
                metrics={n: float(metric(x, y)) for n, metric in self.metrics.items()}
                if due
                else {},
                counts=oracle.counts,
                report=state.report,
            )
        )
        return True

    def progress(self, state: State) -> Progress:
        x, y = self._variables(replace(state, x=state.x.clone(), y=state.y.clone()))
        return Progress(self.history[-1], self.steps, x, y, state)

    def _variables(self, state: State) -> tuple[Variables, Variables]:
        unflatten_x = self.problem.x_structure.unflatten
        return unflatten_x(state.x), self.problem.y_structure.unflatten(state.y)
