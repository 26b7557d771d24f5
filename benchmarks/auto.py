"""Methods with no number given, on the bank of problems with known truth.

    BILEVEL_DATA=... python benchmarks/auto.py [--rule aid-bio] [-o docs/benchmarks/auto.md]

Each method runs on each problem of tests/bank, for at most 10,000 oracle calls (gradients and
products; for sums as many samples as 400 passes over the rows) or 6 s of processor time, with a
tolerance of 1e-4 of the first ‖∇Φ‖ (1e-3 for sums). Solved: Φ at the end, by dense linear algebra,
is within 1 % of Φ(x0) − Φ* of the best value known. Elsewhere: not solved, but verified as
stationary, ‖∇Φ‖ being below twice the tolerance. Above: Φ ends above its start by more than 2 % of
that gap. False: "converged" where the true ‖∇Φ‖ is above twice the tolerance. Problems at even
places were looked at when the rules were chosen; those at odd places judge them.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.progress import track

import bilevel
from bilevel.algorithms import Algorithm, named

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.bank.cases import Case, cases, large_cases, stochastic_cases  # noqa: E402
from tests.bank.truth import lbfgs, truth  # noqa: E402

REFERENCES = ROOT / "tests" / "bank" / "references.json"
RULES = ("default", "aid-bio", "hoag", "itd-bio", "stocbio", "soba", "saba", "f2sa")
BANKS = {"smooth": cases, "sums": stochastic_cases, "large": large_cases}
CALLS, PASSES, SECONDS = 10_000, 400, 6.0


@dataclass(frozen=True)
class Outcome:
    """How a method ended on a problem; `gap` is the part of Φ(x0) − Φ* that is left."""

    rule: str
    bank: str
    place: int
    name: str
    gap: float
    above: bool
    status: str
    false: bool
    stationary: bool
    calls: float
    seconds: float

    @property
    def solved(self) -> bool:
        return self.gap <= 0.01


class References:
    """Φ at the usual start, ‖∇Φ‖ there, and the lowest Φ known, by the problem's name."""

    def __init__(self) -> None:
        self._known = json.loads(REFERENCES.read_text()) if REFERENCES.exists() else {}

    def of(self, case: Case) -> dict[str, float]:
        if case.name not in self._known:
            problem = case.make()
            x0 = problem.x0 if case.home is None else case.home()
            value, h, _ = truth(problem, x0, problem.y0)
            steps = 25 if len(problem.y0) > 100 else 60
            best = case.best if case.best is not None else lbfgs(problem, steps)[0]
            self._set(case, start=value, norm=float(h.norm()), best=min(best, value))
        return self._known[case.name]

    def found(self, case: Case, value: float) -> None:
        """A run may find less than L-BFGS-B did."""
        known = self.of(case)
        if case.best is None and value < known["best"] - 1e-12 * abs(value):
            self._set(case, **{**known, "best": value})

    def _set(self, case: Case, **values: float) -> None:
        self._known[case.name] = values
        REFERENCES.write_text(json.dumps(self._known, indent=1, sort_keys=True) + "\n")


def algorithm(rule: str) -> Algorithm | None:
    return None if rule == "default" else named(rule).algorithm()


def run(rule: str, bank: str, place: int, case: Case, references: References) -> Outcome:
    problem, known = case.make(), references.of(case)
    tol = (1e-4 if bank == "smooth" else 1e-3) * known["norm"]

    def spent(progress: bilevel.Progress) -> bool:
        return cost(bank, problem, progress.record.counts) >= (
            CALLS if bank == "smooth" else PASSES
        )

    began = time.process_time()
    result = bilevel.minimize(
        problem,
        algorithm(rule),
        steps=10**6,
        tol=tol,
        seconds=SECONDS,
        clock=time.process_time,
        callbacks=[spent],
        evaluate_every=10**6,
    )
    seconds = time.process_time() - began
    x, y = problem.x_structure.flatten(result.x), problem.y_structure.flatten(result.y)
    value, h, _ = truth(problem, x, y)
    if case.family not in ("double well", "network"):  # elsewhere y* is one, from any start
        value, h = min((value, h), truth(problem, x, problem.y0)[:2], key=lambda pair: pair[0])
    if math.isfinite(value):
        references.found(case, value)
    known = references.of(case)
    scale = max(known["start"] - known["best"], 1e-300)
    risen = value - truth(problem, problem.x0, problem.y0)[0]
    size = float(h.norm())
    return Outcome(
        rule,
        bank,
        place,
        case.name,
        (value - known["best"]) / scale,
        not risen <= 0.02 * scale + 1e-9 * abs(value),
        str(result.status),
        result.status == "converged" and size > 2 * tol,
        size <= 2 * tol,
        cost(bank, problem, result.counts),
        seconds,
    )


def cost(bank: str, problem: bilevel.Problem, counts: bilevel.Counts) -> float:
    """Oracle calls; for sums, in passes over the rows."""
    if bank == "smooth":
        return counts.gc_g + counts.hv + counts.jv + counts.gc_f / 2
    assert problem.inner_data is not None
    samples = counts.gc_g_samples + counts.hv_samples + counts.jv_samples + counts.gc_f_samples / 2
    return samples / len(problem.inner_data)


def table(outcomes: list[Outcome]) -> Iterable[str]:
    numbers = ["problems", "solved", "elsewhere", "above", "converged", "false"]
    yield "| " + " | ".join(["method", "bank", "half", *numbers, "median cost of solved"]) + " |"
    yield "|---|---|---|" + "---:|" * 7
    for rule, bank in sorted({(o.rule, o.bank) for o in outcomes}, key=lambda k: (k[1], k[0])):
        for half, odd in (("choosing", 0), ("judging", 1)):
            some = [o for o in outcomes if (o.rule, o.bank, o.place % 2) == (rule, bank, odd)]
            solved = [o for o in some if o.solved]
            if some:
                yield (
                    f"| {rule} | {bank} | {half} | {len(some)} | {len(solved)} | "
                    f"{sum(o.stationary and not o.solved for o in some)} | "
                    f"{sum(o.above for o in some)} | "
                    f"{sum(o.status == 'converged' for o in some)} | "
                    f"{sum(o.false for o in some)} | "
                    f"{statistics.median(o.calls for o in solved) if solved else math.nan:.3g} |"
                )


def misses(outcomes: list[Outcome]) -> Iterable[str]:
    yield "| method | problem | half | gap | status | stationary |"
    yield "|---|---|---|---:|---|---|"
    for o in outcomes:
        if not o.solved or o.false or o.above:
            half = "judging" if o.place % 2 else "choosing"
            mark = " above its start" if o.above else " false" if o.false else ""
            how = f"{o.status}{mark}"
            yield f"| {o.rule} | {o.name} | {half} | {o.gap:.2g} | {how} | {o.stationary} |"


def main() -> None:
    about, _, rules = (__doc__ or "").partition("\n\n    ")
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--rule", action="append", choices=[*RULES, "aid-qn", "anchored-aid"])
    parser.add_argument("--bank", action="append", choices=list(BANKS))
    parser.add_argument("--kept", type=Path, default=Path("out/auto.jsonl"), help="outcomes so far")
    parser.add_argument("-o", "--output", type=Path, help="a page to write")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.kept.parent.mkdir(parents=True, exist_ok=True)
    lines = options.kept.read_text().splitlines() if options.kept.exists() else []
    outcomes = [Outcome(**json.loads(line)) for line in lines]
    done = {(o.rule, o.name) for o in outcomes}
    references = References()
    asked = [
        (rule, bank, place, case)
        for bank in options.bank or BANKS
        for place, case in enumerate(BANKS[bank]())
        for rule in options.rule or RULES
        if (rule, case.name) not in done
    ]
    for rule, bank, place, case in track(asked, "the bank"):
        outcome = run(rule, bank, place, case, references)
        outcomes.append(outcome)
        with options.kept.open("a") as file:  # a killed run goes on from here
            file.write(json.dumps(asdict(outcome)) + "\n")
    page = [
        "# No number given",
        "",
        "Made by `python benchmarks/auto.py`. " + " ".join(rules.partition("\n\n")[2].split()),
        "",
        *table(outcomes),
        "",
        "## What was not solved",
        "",
        *misses(outcomes),
        "",
    ]
    print("\n".join(page))
    if options.output is not None:
        options.output.write_text("\n".join(page))


if __name__ == "__main__":
    main()
