"""The runs of a bench: each method and seed in a folder of its own, resumed where it was left."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from bilevel.algorithms import Algorithm
from bilevel.datasets.field_problems import Benchmark, benchmark
from bilevel.durable.files import write_text
from bilevel.durable.folders import check_folder
from bilevel.durable.lock import locked
from bilevel.errors import UserError, listed, quoted
from bilevel.lab.bench.published import method
from bilevel.lab.curves import Curve
from bilevel.lab.notify import Notify
from bilevel.lab.plain_files import read_json
from bilevel.lab.run_log import RunLog
from bilevel.numerics.vectors import norm
from bilevel.oracles import make
from bilevel.runs.minimize import minimize
from bilevel.runs.result import Past, Result
from bilevel.runs.status import Status
from bilevel.runs.verify import look

_PLAN, FIRST_USE = "bench.json", "first-use.json"
_LOOKS = 9  # evaluations of a run, each at twice the seconds of the one before
_NEVER = 10**9
_WARM = 25  # steps that compile what a method needs; from 20 on they are a stretch


@dataclass(frozen=True)
class Bench:
    """What is compared.

    Args:
        problem: one of `bilevel.datasets.benchmarks()`.
        methods: names of `bilevel.algorithms`, perhaps with ":published".
        seconds: of the processor, for each run, without evaluation and compilation.
        seeds: how many, from 0.
    """

    problem: str
    methods: tuple[str, ...]
    seconds: float
    seeds: int

    @cached_property
    def stated(self) -> Benchmark:
        return benchmark(self.problem)

    @property
    def times(self) -> list[float]:
        """When a run is evaluated."""
        return [self.seconds * 2.0 ** (i - _LOOKS + 1) for i in range(_LOOKS)]


def run(bench: Bench, folder: Path, notify: Notify) -> dict[str, list[Curve]]:
    """Make the runs that the folder lacks; the curves of all by method.

    Raises:
        UserError: a method or the problem is unknown, or the folder holds another bench.
    """
    made = {name: method(bench.problem, name) for name in bench.methods}
    pairs = [(name, seed) for name in made for seed in range(bench.seeds)]
    logs = {(m, s): RunLog(folder / "runs" / m / f"seed-{s}") for m, s in pairs}
    with _opened(bench, folder):
        for done, ((name, seed), log) in enumerate(logs.items()):
            notify(f"{name}, seed {seed}", done, len(logs))
            if not log.done:
                _one(bench, made[name], seed, log, folder / FIRST_USE, name)
    notify("done", len(logs), len(logs))
    return {name: [logs[name, s].curve() for s in range(bench.seeds)] for name in made}


def _one(
    bench: Bench, algorithm: Algorithm, seed: int, log: RunLog, first: Path, name: str
) -> None:
    problem, began = bench.stated.problem, log.begin()
    # Apart from the clock of the run: what is compiled is kept on disk, and costs once.
    start = time.process_time()
    minimize(problem, algorithm, steps=_WARM, evaluate_every=_WARM)
    if seed == 0 and began.past is None:
        known = read_json(first, dict) if first.exists() else {}
        write_text(first, json.dumps({**known, name: time.process_time() - start}, indent=2) + "\n")
    past = began.past
    if past is None:
        log.append({"step": 0, "seconds": 0.0, **_measured(bench.stated, problem.x0, problem.y0)})
    result = None
    for limit in bench.times:
        if past is not None and past.seconds >= limit:
            continue
        result = _go_on(bench, algorithm, seed, past, limit)
        past = result.past
        at = result.state.x, result.state.y
        line = {"step": past.state.step, "seconds": past.seconds, **dict(past.counts)}
        log.append({**line, **_measured(bench.stated, *at)})
        log.save(past, {"bench": json.dumps(asdict(bench))})
        if result.status is not Status.TIME_LIMIT:  # it can do no more, or diverged
            break
    if result is not None:
        log.finish(result)


def _go_on(
    bench: Bench, algorithm: Algorithm, seed: int, past: Past | None, seconds: float
) -> Result:
    return minimize(
        bench.stated.problem,
        algorithm,
        steps=_NEVER,
        seconds=seconds,
        seed=seed,
        evaluate_every=_NEVER,
        after=past,
        clock=time.process_time,
    )


def _measured(stated: Benchmark, x: Any, y: Any) -> dict[str, float]:
    """What methods are compared by, at flat x and y; off the clock."""
    oracle = make(stated.problem)
    if stated.rows:
        W = stated.problem.y_structure.unflatten(y)
        return {"validation_loss": float(oracle.outer(x, y).value()), **stated.errors(W)}
    seen = look(oracle, x, y, 1e-8, norm)
    found = {"squared_gradient": seen.norm**2}
    if stated.best is not None:
        found["gap"] = float(oracle.outer(x, seen.y).value()) - stated.best
    return found


@contextmanager
def _opened(bench: Bench, folder: Path) -> Iterator[None]:
    """The folder, new or of the same bench; more methods and seeds may be asked for."""
    same = {"problem": bench.problem, "seconds": bench.seconds}
    if not (folder / _PLAN).is_file():
        check_folder(folder, force=False)
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / _PLAN, json.dumps(same) + "\n")
    elif (there := read_json(folder / _PLAN, dict)) != same:
        raise UserError(
            f"the folder {folder} holds a bench of {quoted(there)}, not of {same}: choose another "
            "with --output, or delete it"
        )
    with locked(folder):
        yield


def columns(curves: Sequence[Curve]) -> str:
    """The column by which methods are ranked."""
    known = {name for curve in curves for name in curve.columns}
    for name in ("gap", "squared_gradient", "test_error"):
        if name in known and all(len(curve.columns.get(name, ())) for curve in curves):
            return name
    raise UserError(f"the runs have nothing to be compared by, but {listed(sorted(known))}")
