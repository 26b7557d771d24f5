"""The runs of a bench: each method and seed in a folder of its own, resumed where it was left."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bilevel.algorithms import Algorithm, State
from bilevel.datasets.field_problems import Benchmark, benchmark
from bilevel.durable.lock import locked
from bilevel.durable.store import Store
from bilevel.errors import UserError, listed, refusing
from bilevel.lab.bench.published import method
from bilevel.lab.curves import Curve
from bilevel.lab.notify import Notify
from bilevel.lab.plain_files import keep_plan, read_json, write_json
from bilevel.lab.run_log import RunLog, writing
from bilevel.numerics.vectors import norm
from bilevel.oracles import make
from bilevel.runs.checkpoints.saved import Saved
from bilevel.runs.minimize import minimize
from bilevel.runs.result import Past
from bilevel.runs.status import Status
from bilevel.runs.verify import look

FIRST_USE = "first-use.json"
_RANGE = 256  # between the first and the last evaluation of a run
_NEVER = 10**9
_WARM = 25  # steps that compile what a method needs; from 20 on they are a stretch


@dataclass(frozen=True)
class Bench:
    """What is compared.

    Args:
        problem: one of `bilevel.datasets.benchmarks()`, or a problem with what it is judged by.
        methods: names of `bilevel.algorithms`, perhaps with ":published"; or methods by label.
        seconds: of the processor, for each run, without evaluation and compilation; None for no
            limit.
        seeds: how many, from 0.
        steps: the most outer steps of a run.
        looks: evaluations of a run, at equal ratios of seconds (or of steps, if only these are
            limited).
        metrics: more to be measured, as functions of x and y.
        check: given the folder, raises if what it holds belongs to something else.
    """

    problem: str | Benchmark
    methods: Sequence[str] | Mapping[str, Algorithm]
    seconds: float | None
    seeds: int
    steps: int = _NEVER
    looks: int = 9
    metrics: Mapping[str, Callable[[Any, Any], float]] = field(default_factory=dict)
    check: Callable[[Path], None] = lambda folder: None

    @cached_property
    def stated(self) -> Benchmark:
        return benchmark(self.problem) if isinstance(self.problem, str) else self.problem

    @property
    def is_own(self) -> bool:
        return not isinstance(self.problem, str)

    @cached_property
    def is_solvable(self) -> bool:
        """Whether an accurate look at the start finds a hypergradient."""
        problem = self.stated.problem
        with problem.untouched(0):
            seen = look(make(problem), problem.x0, problem.y0, 1e-8, norm)
        return math.isfinite(seen.norm)

    @property
    def name(self) -> str:
        return self.problem if isinstance(self.problem, str) else self.problem.name

    @cached_property
    def made(self) -> dict[str, Algorithm]:
        if isinstance(self.methods, Mapping):
            return dict(self.methods)
        return {name: method(self.name, name) for name in self.methods}

    @property
    def limits(self) -> list[tuple[int, float | None]]:
        """The steps and seconds up to which a run goes before it is evaluated."""
        parts = [_RANGE ** (i / (self.looks - 1) - 1) for i in range(self.looks)]
        if self.seconds is None:
            return [(k, None) for k in sorted({max(1, round(self.steps * p)) for p in parts})]
        return [(self.steps, self.seconds * part) for part in parts]

    @property
    def budget(self) -> str:
        """In words."""
        seconds = "" if self.seconds is None else f"{self.seconds:g} s of the processor"
        steps = "" if self.steps == _NEVER else f"{self.steps:,} steps"
        return " or ".join(filter(None, (seconds, steps)))

    @property
    def same(self) -> dict[str, Any]:
        """What two benches in one folder have in common."""
        steps = {} if self.steps == _NEVER else {"steps": self.steps}
        return {"problem": self.name, "seconds": self.seconds, **steps}


def run(bench: Bench, folder: Path, notify: Notify) -> dict[str, list[Curve]]:
    """Make the runs that the folder lacks; the curves of all by method.

    Raises:
        UserError: a method or the problem is unknown, or the folder holds another bench.
    """
    pairs = [(label, seed) for label in bench.made for seed in range(bench.seeds)]
    logs = {(m, s): RunLog(folder / "runs" / _file_name(m) / f"seed-{s}") for m, s in pairs}
    warm: set[str] = set()
    with _opened(bench, folder):
        for done, ((label, seed), log) in enumerate(logs.items()):
            notify(f"{label}, seed {seed}", done, len(logs))
            if not log.done:
                if label not in warm:
                    _warm(bench, label, folder / FIRST_USE)
                    warm.add(label)
                _one(bench, bench.made[label], seed, log)
    notify("done", len(logs), len(logs))
    return {
        label: [replace(logs[label, s].curve(), label=label) for s in range(bench.seeds)]
        for label in bench.made
    }


def _file_name(label: str) -> str:
    return quote(label, safe=" ()=,+:").replace("..", "%2E.") or "%"


def _warm(bench: Bench, label: str, first: Path) -> None:
    """Apart from the clock of the runs: what is compiled is kept on disk, and costs once."""
    start, few = time.process_time(), min(_WARM, bench.steps)
    minimize(
        bench.stated.problem,
        bench.made[label],
        steps=few,
        seconds=bench.seconds,
        evaluate_every=few,
        clock=time.process_time,
    )
    known = read_json(first, dict) if first.exists() else {}
    if label not in known:
        known[label] = time.process_time() - start
        write_json(first, known)


def _one(bench: Bench, algorithm: Algorithm, seed: int, log: RunLog) -> None:
    # Not `minimize(checkpoint=...)`: at each look it would digest the data again.
    problem, store = bench.stated.problem, Store(log.checkpoints)
    past = _kept(store)
    log.begin(-1 if past is None else past.state.step)
    if past is None:
        start = State(0, {"x": problem.x0, "y": problem.y0})
        log.append({"step": 0, "seconds": 0.0, **_measured(bench, start)})
    result = None
    for steps, seconds in bench.limits:
        is_behind = past is not None and (
            past.state.step >= steps or (seconds is not None and past.seconds >= seconds)
        )
        if is_behind:
            continue
        result = minimize(
            problem,
            algorithm,
            steps=steps,
            seconds=seconds,
            seed=seed,
            evaluate_every=_NEVER,
            after=past,
            clock=time.process_time,
        )
        past = result.past
        line = {"step": past.state.step, "seconds": past.seconds, **past.counts}
        log.append({**line, **_measured(bench, result.state)})
        with writing(log.folder):
            store.save(past.state.step, {"past": Saved(past).plain()})
        # Otherwise it can do no more, or diverged.
        if result.status not in {Status.TIME_LIMIT, Status.STEP_LIMIT}:
            break
    if result is not None:
        log.finish(result)


def _kept(store: Store) -> Past | None:
    """Where an interrupted run was."""
    content, advice = store.load(), "; delete this folder, and the run starts over"
    # A whole file may hold anything.
    with refusing(
        f"a checkpoint in {store.folder} does not hold what a run keeps", Exception, advice=advice
    ):
        return None if content is None else Saved.of(content["past"]).past


def _measured(bench: Bench, state: State) -> dict[str, float]:
    """What methods are compared by; off the clock."""
    stated, x, y = bench.stated, state.x, state.y
    problem = stated.problem
    with problem.untouched(0, 0, state.buffers or problem.buffers):
        oracle = make(problem)
        outer = float(oracle.outer(x, y).value())
        if stated.rows:
            return {"validation_loss": outer, **stated.errors(problem.y_structure.unflatten(y))}
        found = {"outer_value": outer} if bench.is_own else {}
        if not bench.is_own or bench.is_solvable:
            seen = look(oracle, x, y, 1e-8, norm)
            value = float(oracle.outer(x, seen.y).value())
            found["squared_gradient"] = seen.norm**2
            if stated.best is not None:
                found["gap"] = value - stated.best
            elif bench.is_own:
                found["value"] = value if math.isfinite(seen.norm) else math.nan
    if bench.metrics:  # copies, which a metric may modify
        at = problem.modules(x, y, state.buffers or problem.buffers)
        found |= {name: float(metric(*at)) for name, metric in bench.metrics.items()}
    return found


@contextmanager
def _opened(bench: Bench, folder: Path) -> Iterator[None]:
    """The folder, new or of the same bench; more methods and seeds may be asked for."""
    keep_plan(folder / "bench.json", bench.same, "a bench")
    with locked(folder):
        bench.check(folder)
        yield


def columns(curves: Sequence[Curve]) -> str:
    """The column by which methods are ranked."""
    known = {name for curve in curves for name in curve.columns}
    for name in ("gap", "value", "squared_gradient", "test_error", "outer_value"):
        if name in known and all(len(curve.columns.get(name, ())) for curve in curves):
            return name
    what = f", only {listed(sorted(known))}" if known else ""
    raise UserError(f"the runs measured nothing that can be ranked{what}")
