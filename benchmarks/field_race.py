"""The field's contests R6, R8, R9, R11 and R12: compiled stretches against JAX's jitted scans.

    BILEVEL_DATA=... python benchmarks/field_race.py --jax /path/to/python [--contest R11 ...]

One thread, seconds of the processor, our turn and theirs in turn. Both in single precision, which
is JAX's own; compilation is apart and shown. JAX's side is race/field/with_jax.py, run by the
Python that --jax names, with benchmark_bilevel's tuned settings. Evaluation is off the clock, by
our oracle. Results are added to docs/benchmarks/field.jsonl as they come.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from race.field import cases
from race.field.cases import CONTESTS, Contest

import bilevel
from bilevel.numerics.vectors import norm
from bilevel.oracles import make
from bilevel.runs.verify import look

_ROUNDS = 5


class Rival:
    """JAX's process."""

    def __init__(self, python: str, case: dict[str, Any], folder: Path) -> None:
        file = folder / f"{case['method']}.json"
        self.out = folder / f"{case['method']}.npz"
        file.write_text(json.dumps({"batch": 64, "seed": 0, **case, "out": str(self.out)}))
        script = Path(__file__).parent / "race" / "field" / "with_jax.py"
        threads = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": threads}
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            [python, str(script), str(file)], stdin=pipe, stdout=pipe, text=True, env=environment
        )

    def ask(self, question: str) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(question + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"JAX's process ended at {question!r}")
        return float(json.loads(line))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def steps(contest: Contest, python: str, folder: Path) -> list[dict[str, Any]]:
    """µs a step of each method: the median and the least of some rounds."""
    problem = cases.problem_of(contest.problem)[0]
    problem = cases.single(problem, torch.float32)
    data = folder / "data.npz"
    np.savez(data, **cases.arrays(problem, torch.float32))
    weights = problem.model.form.weighted  # type: ignore[union-attr]
    found = []
    for settings in contest.rivals:
        shared = {"data": str(data), "penalty": "weights" if weights else "e^x", "ridge": 0.2}
        rival = Rival(python, {**shared, **settings}, folder)
        method, oracle = cases.algorithm(settings), make(problem, 0)
        state = method.init(oracle, problem.x0, problem.y0)
        first = _cpu(lambda: method.stretch(oracle, state, contest.steps))  # noqa: B023
        line = f"steps {contest.steps}"
        theirs_first, ours, theirs = rival.ask(line), [], []
        for _ in range(_ROUNDS):
            ours.append(_cpu(lambda: method.stretch(oracle, state, contest.steps)))  # noqa: B023
            theirs.append(rival.ask(line))
        rival.close()
        each = 1e6 / contest.steps
        found.append(
            {
                "method": settings["method"],
                "ours_us": each * statistics.median(ours),
                "ours_least_us": each * min(ours),
                "jax_us": each * statistics.median(theirs),
                "jax_least_us": each * min(theirs),
                "ratio": statistics.median(ours) / statistics.median(theirs),
                "limit_us": contest.limits.get(settings["method"]),
                "first_s": first,
                "jax_first_s": theirs_first,
            }
        )
        print(json.dumps(found[-1]), flush=True)
    return found


def _cpu(run: Any) -> float:
    begun = time.process_time()
    run()
    return time.process_time() - begun


def to_levels(contest: Contest, python: str, folder: Path) -> list[dict[str, Any]]:
    """Seconds to each level, of ours with no number and of each rival."""
    problem, best, called = cases.problem_of(contest.problem)
    data = folder / "data.npz"
    np.savez(data, **cases.arrays(problem, torch.float32))
    weights = problem.model.form.weighted  # type: ignore[union-attr]
    first = _cpu(lambda: bilevel.minimize(problem, steps=2))
    trail: list[tuple[float, Any, Any]] = []
    bilevel.minimize(
        problem,
        steps=10**6,
        seconds=contest.seconds / 4,
        clock=time.process_time,
        callbacks=[lambda p: trail.append((p.record.seconds, p.state.x, p.state.y))],
    )
    ways = {"bilevel": (first, trail)}
    for settings in contest.rivals:
        shared = {"data": str(data), "penalty": "weights" if weights else "e^x", "ridge": 0.2}
        rival = Rival(python, {**shared, **settings}, folder)
        begun = rival.ask(f"run {contest.seconds}")
        rival.close()
        saved = np.load(rival.out)
        points = zip(saved["times"], saved["x"], saved["y"], strict=True)
        ways[f"JAX {settings['method']}"] = begun, list(points)
    curves = {
        name: [(float(t), _measured(contest, problem, best, x, y)) for t, x, y in trail]
        for name, (_, trail) in ways.items()
    }
    levels = contest.levels
    if not levels:
        least = min(value for curve in curves.values() for _, value in curve)
        levels = (least + 0.005,)
    found = []
    for name, curve in curves.items():
        reached = [next((t for t, value in curve if value <= level), None) for level in levels]
        found.append(
            {
                "who": name,
                "limit_s": contest.seconds / (4 if name == "bilevel" else 1),
                "problem": called,
                "levels": levels,
                "seconds": reached,
                "first_s": ways[name][0],
                "least": min(value for _, value in curve),
                "curve": curve[:: max(1, len(curve) // 25)],
            }
        )
        print(json.dumps({k: v for k, v in found[-1].items() if k != "curve"}), flush=True)
    return found


def _measured(contest: Contest, problem: Any, best: float | None, x: Any, y: Any) -> float:
    x, y = (torch.as_tensor(np.asarray(a)).to(problem.x0).reshape(-1) for a in (x, y))
    if contest.measure == "error":
        return cases.errors_of(problem, y)
    oracle = make(problem)
    if contest.measure == "value":
        return float(oracle.outer(x, y).value())
    if not bool(torch.isfinite(x).all()):
        return float("inf")
    seen = look(oracle, x, y, 1e-6, norm)
    return float(oracle.outer(x, seen.y).value()) - (best or 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jax", required=True, help="a Python that has jax")
    names = [contest.name for contest in CONTESTS]
    parser.add_argument("--contest", action="append", choices=names, help="by default all")
    parser.add_argument("--seconds", type=float, help="that each may take in a race to a level")
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/benchmarks/field.jsonl"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    for contest in CONTESTS:
        if contest.name not in (options.contest or names):
            continue
        if options.seconds is not None:
            contest = replace(contest, seconds=options.seconds)
        print(f"{contest.name}: {contest.title}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            kind = steps if contest.steps else to_levels
            load = os.getloadavg()[0]
            rows = kind(contest, options.jax, Path(folder))
        with options.output.open("a", encoding="utf-8") as file:
            for row in rows:
                file.write(json.dumps({"contest": contest.name, "load": load, **row}) + "\n")


if __name__ == "__main__":
    main()
