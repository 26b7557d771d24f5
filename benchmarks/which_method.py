"""Every method on some problems, without numbers and with the best of a grid: docs/which-method.md.

    BILEVEL_DATA=... python benchmarks/which_method.py [--seconds 5] [--problem ijcnn1 ...]

Each cell is a run of some seconds of the processor; Φ on the way is evaluated accurately, off the
clock. The best of a grid is what had the lowest Φ after a fifth of these seconds. Cells are added
to docs/benchmarks/which-method.jsonl as they come, and those that are there already are not made
again: the command can be stopped and given again. At the end it writes the page from all cells,
where Φ* is the lowest Φ that any method has seen.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import bilevel
from bilevel.algorithms import registry
from bilevel.numerics.vectors import norm
from bilevel.oracles import make
from bilevel.runs.verify import look

_PARTS = (1e-1, 1e-2, 1e-3)
_SHOWN = 12  # evaluations of a run
_RAW, _PAGE = Path("docs/benchmarks/which-method.jsonl"), Path("docs/which-method.md")
_TRIAL = 0.2  # of the seconds: what each point of the grid has
_GRID = [(a, b) for a in (0.01, 0.1, 1.0) for b in (0.01, 0.1, 1.0, 10.0)]  # inner_lr, outer_lr
_LEFT_OUT = {"maml", "reverse"}  # which need tasks, or go through a given number of steps


def quadratic() -> bilevel.Problem:
    """10 outer and 30 inner variables, condition number 100."""
    draw = torch.Generator().manual_seed(5)
    scales = torch.logspace(-2, 0, 30, dtype=torch.float64)
    A = torch.randn(30, 10, generator=draw, dtype=torch.float64)
    b = torch.randn(30, generator=draw, dtype=torch.float64)
    return bilevel.Problem(
        outer=lambda x, y: ((y - b) ** 2).sum() / 2 + 0.05 * (x**2).sum(),
        inner=lambda x, y: (scales * (y - A @ x) ** 2).sum() / 2,
        x0=torch.zeros(10).double(),
        y0=torch.zeros(30).double(),
    )


def ridge() -> bilevel.Problem:
    """The logarithms of 20 penalties of a least-squares regression, as plain losses."""
    draw = torch.Generator().manual_seed(6)
    X = torch.randn(300, 20, generator=draw, dtype=torch.float64)
    w = torch.randn(20, generator=draw, dtype=torch.float64) * (torch.arange(20) < 5)
    t = X @ w + torch.randn(300, generator=draw, dtype=torch.float64)

    def inner(x: Any, y: Any, batch: Any) -> Any:
        rows, targets = batch.data
        return ((rows @ y - targets) ** 2).mean() / 2 + (x.exp() * y**2).sum() / 2

    def outer(x: Any, y: Any, batch: Any) -> Any:
        rows, targets = batch.data
        return ((rows @ y - targets) ** 2).mean() / 2

    halves = [(X[i : i + 150], t[i : i + 150]) for i in (0, 150)]
    zeros = torch.zeros(20).double()
    return bilevel.Problem(outer, inner, zeros, zeros, outer_data=halves[1], inner_data=halves[0])


PROBLEMS: dict[str, Callable[[], bilevel.Problem]] = {
    "quadratic": quadratic,
    "ridge": ridge,
    **{
        name: lambda name=name: bilevel.datasets.benchmark(name).problem  # type: ignore[misc]
        for name in ("ijcnn1", "quadratics", "mnist-cleaning-0.5")
    },
}


def cell(problem: bilevel.Problem, method: Any, seconds: float) -> dict[str, Any]:
    """Seconds, passes over the rows and Φ on the way."""
    trail: list[tuple[float, float, Any, Any]] = []
    rows = max((len(data) for data in (problem.inner_data, problem.outer_data) if data), default=1)

    def keep(progress: Any) -> None:
        record, spent = progress.record, progress.record.counts
        samples = spent.gc_f_samples / 2 + spent.gc_g_samples + spent.jv_samples + spent.hv_samples
        trail.append((record.seconds, samples / rows, progress.state.x, progress.state.y))

    bilevel.minimize(problem, method, steps=1)  # compiles
    result = bilevel.minimize(
        problem,
        method,
        steps=100_000,
        seconds=seconds,
        clock=time.process_time,
        callbacks=[keep],
        evaluate_every=10**9,
    )
    oracle, following, way = make(problem), 0.0, []
    for i, (spent, passes, x, y) in enumerate(trail):
        if spent < following and i < len(trail) - 1:
            continue
        following = max(1.6 * spent, seconds / 2.0**_SHOWN)
        seen = look(oracle, x, y, 1e-6, norm)
        way.append((spent, passes, float(oracle.outer(x, seen.y).value())))
    return {"status": str(result.status), "way": way}


def best_of_grid(problem: bilevel.Problem, entry: Any, seconds: float) -> Any:
    """The method with the numbers that lead lowest; None if it does not take both."""
    fields = set(entry.algorithm.__dataclass_fields__)
    if not {"inner_lr", "outer_lr"} <= fields:
        return None
    batch = {"batch": 64 if problem.inner_data else None} if "batch" in fields else {}
    inner = fields & {"inner_lr", "neumann_lr", "fixed_point_lr"}
    oracle, found = make(problem), []
    for inner_lr, outer_lr in _GRID:
        method = entry.make(**batch, **dict.fromkeys(inner, inner_lr), outer_lr=outer_lr)
        limits = {"steps": 100_000, "seconds": _TRIAL * seconds, "clock": time.process_time}
        state = bilevel.minimize(problem, method, evaluate_every=10**9, **limits).state
        seen = look(oracle, state.x, state.y, 1e-6, norm)
        value = float(oracle.outer(state.x, seen.y).value())
        found.append((value if math.isfinite(value) else math.inf, len(found), method))
    return min(found)[2]


def page(lines: list[dict[str, Any]]) -> str:
    """The table, as far as there are cells."""
    problems = [name for name in PROBLEMS if any(line["problem"] == name for line in lines)]
    parts = [_HEAD]
    for name in problems:
        own = [line for line in lines if line["problem"] == name]
        best = min(value for line in own for _, _, value in line["way"])
        start = own[0]["start"]
        parts.append(f"## {name}\n\nΦ(x0) = {start:.6g}, lowest Φ seen {best:.6g}; ")
        parts[-1] += f"{own[0]['seconds']:g} s of the processor a run.\n\n"
        parts[-1] += "| method | " + " | ".join(f"s to {p:g}" for p in _PARTS)
        parts[-1] += " | " + " | ".join(f"passes to {p:g}" for p in _PARTS) + " |\n"
        parts[-1] += "|---" * (1 + 2 * len(_PARTS)) + "|\n"
        rows = [(_reached(line, start, best), line) for line in own]
        for reached, line in sorted(rows, key=lambda r: [t or 1e9 for t, _ in r[0]][::-1]):
            times = [f"{t:.2g}" if t is not None else "" for t, _ in reached]
            passes = [f"{p:,.3g}" if p is not None else "" for _, p in reached]
            parts[-1] += f"| {' | '.join([line['method'], *times, *passes])} |\n"
    return "\n\n".join(parts)


def _reached(line: dict[str, Any], start: float, best: float) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    for part in _PARTS:
        level = best + part * (start - best)
        found.append(next(((t, p) for t, p, v in line["way"] if v <= level), (None, None)))
    return found


_HEAD = """# Which method?

`minimize(problem)` chooses a method by what it knows of the problem, and
`bilevel.recommend(problem)` says which one, and why. The rule: `AIDQN` below 400 rows and
`AnchoredAID` from 400 rows on. From 20,000 rows on it begins with compiled steps of SABA, provided
that the model is linear with one column, its rows are dense and x holds its penalties. How often
the first two succeed is measured in [no settings](benchmarks/auto.md). The rule for 20,000 rows
was chosen on ijcnn1 alone. On five synthetic problems of 30,000 to 60,000 rows (logistic, least
squares, four classes, two of them with feature scales from 0.01 to 100) it took between half and
twice the time of `AnchoredAID`, and never ended more than 1e-4 of Φ above it; it has been judged
on no other real table. With several columns and 100,000 rows it begins with compiled steps of SOBA,
a rule that was chosen on synthetic forests; on the one that judges it does not reach the error of
its rivals ([the field's contests](benchmarks/field.md)). Of the problems below, only ijcnn1 played
a part in a choice.

The tables list processor seconds, and passes over the rows, until a method has closed the gap
Φ(x0) − Φ* to the given fraction. Each gradient and each product counts as its share of the rows;
on problems without rows, passes are calls. All are single runs, either without settings, or
"tuned": with the best of twelve pairs of `inner_lr` and `outer_lr` on this very problem, whose
search took a further 2.4 times as long. An empty cell means that the gap was not closed in the
time; a method without a row was not run. All other settings are those of the method's example in
the registry, with batches of 64 rows. Every step is recorded here, so methods with array code
(SOBA, SABA, TTSA, stocBiO, ...) take single steps; for their speed in compiled stretches, see [the
field's contests](benchmarks/field.md). `python benchmarks/which_method.py` makes the tables, and
resumes after an interruption."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--problem", action="append", choices=list(PROBLEMS))
    parser.add_argument("--method", action="append", choices=["default", *registry()])
    options = parser.parse_args()
    torch.set_num_threads(1)
    methods = {"default": None, **registry()}
    lines = [json.loads(line) for line in _RAW.read_text().splitlines()] if _RAW.exists() else []
    done = {(line["problem"], line["method"]) for line in lines}
    for name in options.problem or PROBLEMS:
        problem = PROBLEMS[name]()
        oracle = make(problem)
        seen = look(oracle, problem.x0, problem.y0, 1e-8, norm)
        start = float(oracle.outer(problem.x0, seen.y).value())
        chosen = [m for m in methods if m in (options.method or methods) and m not in _LEFT_OUT]
        for method, called in [(m, c) for m in chosen for c in (m, f"{m}, tuned")]:
            tuned, entry = called != method, methods[method]
            if (name, called) in done or (tuned and entry is None):
                continue
            try:
                if tuned:
                    own = best_of_grid(problem, entry, options.seconds)
                    if own is None:
                        continue
                else:
                    own = entry.algorithm() if entry else None
                found = cell(problem, own, options.seconds)
            except Exception as failure:  # a cell that fails is a result, too
                found = {"status": f"failed: {type(failure).__name__}", "way": []}
            about = {"problem": name, "method": called, "seconds": options.seconds, "start": start}
            numbers = {"numbers": [own.inner_lr, own.outer_lr]} if tuned and found["way"] else {}
            lines.append({**about, **found, **numbers})
            with _RAW.open("a", encoding="utf-8") as file:
                file.write(json.dumps(lines[-1]) + "\n")
            print(name, called, found["status"], found["way"][-1:], flush=True)
        _PAGE.write_text(page(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
