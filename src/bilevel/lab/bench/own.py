"""`bilevel.compare`: methods against each other on a problem of one's own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bilevel.algorithms import Algorithm, named, registry
from bilevel.arguments import instance, positive, positive_integer
from bilevel.datasets.field_problems import Benchmark
from bilevel.discovery import import_extra
from bilevel.durable.files import write_text
from bilevel.errors import UserError, quoted
from bilevel.lab.bench.job import Bench, columns, run
from bilevel.lab.bench.page import lines, table, write_page
from bilevel.lab.curves import Curve
from bilevel.lab.notify import line_in_terminal
from bilevel.lab.plain_files import read_json, write_json
from bilevel.lab.text_table import aligned
from bilevel.problem.identity.problems import identity_of_problem
from bilevel.problem.problem import Problem
from bilevel.report.blocks import Code, Table
from bilevel.runs.checkpoints.identity import Identity, differences, identity_of_settings

Methods = Mapping[str, Algorithm | str] | Iterable[Algorithm | str]
_LOOKS = 17
_SECONDS = 2.0


@dataclass(frozen=True)
class Compared:
    """What `bilevel.compare` found. Printed, it is a table.

    Args:
        bench: what was compared.
        curves: by label, what each seed measured, as in `curve.column("value")`.
        table: times to parts of the start's value, medians over the seeds.
        ranked: the column that the table is about: "value" (Φ(x) with the inner problem solved
            accurately), or "outer_value" (f at the run's own y) where that cannot be solved.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> found = bilevel.compare(halves(), ["hoag", "aid-bio"], steps=2, seeds=1)
        >>> found.ranked, bool(found.curves["hoag"][0].column("value")[-1] < 2)
        ('value', True)
    """

    bench: Bench
    curves: dict[str, list[Curve]]
    table: Table
    ranked: str

    def __str__(self) -> str:
        return f"{self.table.caption}\n\n{aligned(lines(self.table))}\n\n{self.table.note}"

    def report(self, folder: str | Path) -> Path:
        """Write report.html (curves and table, one file without network), table.md, curves.jsonl.

        Returns:
            The page. It needs the extra "cli": pip install "bilevel[cli]".
        """
        import_extra("plotly", "a report needs plotly", "cli")
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        page, methods = place / "report.html", self.bench.made.items()
        how = Code("The methods", "\n".join(f"{label}: {method}" for label, method in methods))
        write_page(page, self.bench, self.curves, self.table, how)
        write_text(place / "table.md", f"{self}\n")
        write_text(
            place / "curves.jsonl",
            "".join(_lines(c) for seeds in self.curves.values() for c in seeds),
        )
        return page


def compare(
    problem: Problem,
    methods: Methods,
    *,
    seconds: float | None = None,
    steps: int | None = None,
    seeds: int = 3,
    metrics: Mapping[str, Callable[[Any, Any], float]] | None = None,
    folder: str | Path | None = None,
    name: str = "own problem",
) -> Compared:
    """Run several methods on one problem, from the same start, with the same budget.

    Evaluation and what is compiled at first use are off the clock. At each evaluation the inner
    problem is solved accurately, so that Φ(x) and ‖∇Φ(x)‖² do not depend on a method's own y;
    where it cannot be (a network), f at the method's y is compared.

    Args:
        problem: with its start.
        methods: names or objects of `bilevel.algorithms`; or these by labels of your own. A name is
            the method without numbers.
        seconds: of the processor, for each run; 2 if neither limit is given.
        steps: the most outer steps of a run.
        seeds: how many, from 0.
        metrics: functions of x and y by name, to be drawn too.
        folder: where to keep the runs. Repeating the call resumes what was interrupted, and adds
            methods and seeds. Without a folder, runs are kept in memory only.
        name: of the problem, for tables and pages.

    Raises:
        UserError: a method is unknown, or the folder holds something else. It is a ValueError.

    Example:
        >>> import torch, bilevel
        >>> I = torch.eye(2).double()
        >>> problem = bilevel.quadratic_problem(2 * I, I, I[0], I, I[1])
        >>> found = bilevel.compare(problem, ["aid-bio", "hoag"], steps=4, seeds=2)
        >>> list(found.curves), len(found.curves["hoag"])
        (['aid-bio', 'hoag'], 2)
    """
    instance("problem", problem, Problem, "bilevel.Problem(...)")
    made = _made(methods)
    if seconds is None and steps is None:
        seconds = _SECONDS
    limits = {} if steps is None else {"steps": positive_integer("steps", steps)}

    def check(place: Path) -> None:
        if folder is not None:
            _same(place / "problem.json", identity_of_problem(problem), "problem")
            for label, method in made.items():
                file = place / "methods" / f"{label.encode().hex()}.json"
                _same(file, identity_of_settings("method", method), f"method {quoted(label)}")

    bench = Bench(
        Benchmark(name, problem),
        made,
        None if seconds is None else positive("seconds", seconds),
        positive_integer("seeds", seeds),
        **limits,
        looks=_LOOKS,
        metrics=dict(metrics or {}),
        check=check,
    )
    with TemporaryDirectory() as short:
        place = Path(short) / "runs" if folder is None else Path(folder)
        curves = run(bench, place, line_in_terminal())
        ranked = columns([curve for seeds in curves.values() for curve in seeds])
        return Compared(bench, curves, table(bench, curves, place), ranked)


def _made(methods: Methods) -> dict[str, Algorithm]:
    if isinstance(methods, str | Algorithm):
        methods = [methods]
    instance("methods", methods, Iterable, "['saba', bilevel.algorithms.AIDBiO()]")
    pairs = methods.items() if isinstance(methods, Mapping) else ((None, m) for m in methods)
    found: dict[str, Algorithm] = {}
    for label, given in pairs:
        method = named(given).algorithm() if isinstance(given, str) else given
        instance("a method", method, Algorithm, "'saba' or bilevel.algorithms.SABA()")
        plain = next((n for n, e in registry().items() if e.algorithm is type(method)), None)
        base = str(label or plain or type(method).__name__)
        times = sum(other == base or other.startswith(f"{base} #") for other in found)
        found[base if not times else f"{base} #{times + 1}"] = method
    if not found:
        raise UserError("methods is empty: name some, such as ['saba', 'aid-bio']")
    return found


def _same(file: Path, words: Identity, what: str) -> None:
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, words)
    elif told := differences(read_json(file, dict), words):
        raise UserError(
            f"the folder {file.parent} holds runs of another {what} ({'; '.join(told[:3])}): "
            "choose another folder, or delete it"
        )


def _lines(curve: Curve) -> str:
    rows = zip(*curve.columns.values(), strict=True)
    known = {"method": curve.label, "seed": curve.seed}
    found = (
        {n: float(v) for n, v in zip(curve.columns, row, strict=True) if v - v == 0} for row in rows
    )
    return "".join(json.dumps({**known, **line}) + "\n" for line in found)
