"""Outer steps in stretches: what the frames share."""

from __future__ import annotations

from torch import Tensor

from bilevel.algorithms.contract import Algorithm, Report, Solve, State
from bilevel.oracles.plans import do
from bilevel.oracles.points import Oracle
from bilevel.oracles.stretches import Moved, Stretch
from bilevel.oracles.views import View
from bilevel.problem.ahead import Ahead
from bilevel.solvers.updates.base import Update


def ahead(oracle: Oracle, state: State, steps: int) -> Ahead:
    """The random choices of the next steps."""
    return Ahead(oracle.seed, state.step, steps, oracle.inner_rows, oracle.outer_rows)


def in_array_code(update: Update) -> bool:
    """Whether an update has its own array code: its parent's would miss what a subclass changed."""
    return vars(type(update)).get("moves") is not None


def taken(
    plan: Stretch,
    oracle: Oracle,
    state: State,
    outer: Update,
    noisy: bool,
    solves: tuple[Solve, ...] = (),
) -> tuple[State, Report, Tensor]:
    """The state after a stretch, the report of its last step, and the x that it belongs to."""
    done, steps = do(plan, oracle), len(plan.rates)
    points, memory = {**state.points, **done.points}, {**state.memory, "x": done.memory}
    after = State(state.step + steps, points, memory, done.tables, state.measured)
    size = outer.stationarity(done.x, done.direction)
    return after, Report(done.direction, size, solves, noisy=noisy), done.x


def by_steps(algorithm: Algorithm, oracle: Oracle, state: State, steps: int) -> Moved:
    """One step after another, where nothing faster is known; the tables are copied first."""
    state = state.with_own_tables()
    for _ in range(steps):
        before, (state, report) = state, algorithm.step(View.of(oracle, state.step), state)
        for write in report.writes:
            state.tables[write.table][write.rows] = write.values
    points, tables = dict(state.points), dict(state.tables)
    return Moved(points, state.memory["x"], tables, before.x, report.direction)
