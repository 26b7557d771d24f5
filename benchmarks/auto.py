"""Methods with no number given, on the bank of problems with known truth.

    BILEVEL_DATA=... python benchmarks/auto.py --rule soba --bank sums [--half judging] [-o PAGE]

Outcomes are kept in docs/benchmarks/auto.jsonl, one a line: what is there is not run again, and
the page shows all of them. `--forget RULE` runs a method again that has changed.

Each method runs on each problem of tests/bank, for at most 10,000 oracle calls (gradients and
products; from 400 rows on, outside the bank "smooth", as many samples as 400 passes over the rows)
or 6 s of processor time, with a tolerance of 1e-4 of the first ‖∇Φ‖ ("smooth") or 1e-3. Solved: Φ
at the end, by dense linear algebra, is within 1 % of Φ(x0) − Φ* of the best value known. Elsewhere:
not solved, but verified as stationary, ‖∇Φ‖ being below twice the tolerance. Above: Φ ends above
its start by more than 2 % of that gap. False: "converged" where the true ‖∇Φ‖ is above twice the
tolerance. Cost: oracle calls, or passes, until Φ is first within that 1 %, as a median of those
that get there; beside it, as medians over the problems that both reach, how many times the cost of
SciPy's L-BFGS-B on exact hypergradients (Newton's method and CG from the last solutions, to 1e-6),
and of the best of a grid. The grid is AID-BiO with 20 inner and 20 CG steps, or from 400 rows on
stocBiO with 10 and 10 on batches of 64, with inner_lr in .01, .1, 1 and outer_lr in .001, .01, ...,
100, for 0.5 s each; what the other 17 runs cost is not counted. Problems at even places were looked
at when the rules were chosen; those at odd places judge them. Of "fresh", both halves were looked
at: the rules were mended by what they showed. "zoo" was made after the rules, in other fields, and
they were not changed after it was run. Where a row has fewer problems than others of its
bank, they are each n-th of that half (`--every`), or its first ones, as far as there was time.
Rows were made at several times: those of "default" are the newest, with the judging "sums" rows of
all methods that run in chapters judged by Φ, made after chapters became shorter and their solves
rougher: the lengths were chosen on the "sums" problems at even places with nine of these methods.
Their "smooth" rows are of the code before that; since then, too, derivatives beside a kink are
looked at, falls of Φ within its error are no longer counted, Φ is looked at again where it was
taken for too low, and flat directions of the inner Hessian are left out of the solves (the singular
problems were run again after that).
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import numpy as np
import scipy.optimize
import torch
from rich.progress import track
from torch import Tensor

import bilevel
from bilevel.algorithms import Algorithm, named, registry
from bilevel.hypergradients.base import Stand
from bilevel.oracles.views import Views

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.bank.cases import (  # noqa: E402
    Case,
    cases,
    fresh_cases,
    large_cases,
    stochastic_cases,
    zoo_cases,
)
from tests.bank.truth import lbfgs, truth  # noqa: E402

REFERENCES = ROOT / "tests" / "bank" / "references.json"
KEPT = ROOT / "docs" / "benchmarks" / "auto.jsonl"
BANKS = {
    "smooth": cases,
    "sums": stochastic_cases,
    "large": large_cases,
    "fresh": fresh_cases,
    "zoo": zoo_cases,
}
RIVALS = ("l-bfgs-b", "grid")
CALLS, PASSES, SECONDS = 10_000, 400, 6.0
ENOUGH = 0.01  # of Φ(x0) − Φ*


@dataclass(frozen=True)
class Outcome:
    """How a method ended on a problem.

    `gap` is the part of Φ(x0) − Φ* that is left, `risen` by how much of it Φ ended above its
    start, `reach` the cost until the gap was at most 1 %, if ever.
    """

    rule: str
    bank: str
    place: int
    name: str
    gap: float
    risen: float
    status: str
    false: bool
    stationary: bool
    calls: float
    reach: float | None
    seconds: float

    @property
    def solved(self) -> bool:
        return self.gap <= ENOUGH

    @property
    def above(self) -> bool:
        return not self.risen <= 0.02


class References:
    """Φ at the usual start, ‖∇Φ‖ there, and the lowest Φ known, by the problem's name."""

    def __init__(self) -> None:
        self._known = json.loads(REFERENCES.read_text()) if REFERENCES.exists() else {}

    def of(self, case: Case) -> dict[str, float]:
        if case.name not in self._known:
            problem = case.exact()
            x0 = problem.x0 if case.home is None else case.home()
            value, h, _ = truth(problem, x0, problem.y0)
            steps, gtol = 25 if len(problem.y0) > 100 else 60, 1e-5 * float(h.abs().max())
            best = case.best if case.best is not None else lbfgs(problem, steps, gtol=gtol)[0]
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


class Cost:
    """Oracle calls; for sums, in passes over the rows."""

    def __init__(self, bank: str, problem: bilevel.Problem) -> None:
        sides = [data for data in (problem.inner_data, problem.outer_data) if data is not None]
        rows = max([len(data) for data in sides], default=0)
        self.rows = None if bank == "smooth" or rows < 400 else rows
        self.most = CALLS if self.rows is None else PASSES

    def of(self, counts: bilevel.Counts) -> float:
        if self.rows is None:
            return counts.gc_g + counts.hv + counts.jv + counts.gc_f / 2
        samples = counts.gc_g_samples + counts.hv_samples + counts.jv_samples
        return (samples + counts.gc_f_samples / 2) / self.rows


@dataclass(frozen=True)
class Ended:
    """Where a run ended, what it said and cost, and where it came by: (cost, x), in order."""

    x: Tensor
    y: Tensor
    status: str
    cost: float
    way: list[tuple[float, Tensor]]


def minimized(
    problem: bilevel.Problem,
    method: Algorithm | None,
    tol: float | None,
    cost: Cost,
    seconds: float = SECONDS,
) -> Ended:
    way: list[tuple[float, Tensor]] = []

    def spent(progress: bilevel.Progress) -> bool:
        at = cost.of(progress.record.counts)
        if not way or at >= 1.02 * way[-1][0]:
            way.append((at, progress.state.x))
        return at >= cost.most

    result = bilevel.minimize(
        problem,
        method,
        steps=10**6,
        tol=tol,
        seconds=seconds,
        clock=time.process_time,
        callbacks=[spent],
        evaluate_every=10**6,
    )
    x, y = problem.x_structure.flatten(result.x), problem.y_structure.flatten(result.y)
    total = cost.of(result.counts)
    return Ended(x, y, str(result.status), total, [*way, (total, x)])


def quasi_newton(problem: bilevel.Problem, tol: float, cost: Cost) -> Ended:
    """SciPy's L-BFGS-B on hypergradients that are exact but for a millionth."""
    views, exact = Views(problem), named("aid-qn").make(drop=1e-6)
    oracle, way = views.at(0).whole, [(0.0, problem.x0)]
    at, deadline = Stand(problem.x0, problem.y0, None), time.process_time() + SECONDS
    lowest = math.inf

    def evaluate(z: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal at, lowest
        if cost.of(views.counts) >= cost.most or time.process_time() > deadline:
            raise TimeoutError
        x = torch.from_numpy(z.copy()).to(problem.dtype)
        stand = Stand(x, at.y, at.v, at.memory)
        found = exact.evaluate(oracle, stand, None, oracle.streams(0))
        if not found.is_finite:
            return 1e300, np.zeros_like(z)
        at = Stand(x, found.y, found.v, found.memory)
        if found.value < lowest:
            lowest = found.value
            way.append((cost.of(views.counts), x))
        return found.value, found.h.double().numpy()

    options = {"maxiter": 10**6, "maxfun": 10**6, "ftol": 0.0, "gtol": tol / 2, "maxcor": 20}
    try:
        x0 = problem.x0.double().numpy()
        scipy.optimize.minimize(evaluate, x0, jac=True, method="L-BFGS-B", options=options)
        status = "ended"
    except TimeoutError:
        status = "limit"
    return Ended(way[-1][1], problem.y0, status, cost.of(views.counts), way)


def grid(problem: bilevel.Problem, cost: Cost, reach: Callable[[Ended], float | None]) -> Ended:
    """The run of the grid that first comes within 1 %, else the one that ends lowest."""
    best: tuple[float, float, Ended] | None = None
    for inner_lr, power in product((0.01, 0.1, 1.0), range(-3, 3)):
        sizes = {"inner_lr": inner_lr, "outer_lr": 10.0**power}
        if cost.rows is None:
            method = bilevel.algorithms.AIDBiO(inner_steps=20, cg_steps=20, **sizes)
        else:
            method = bilevel.algorithms.StocBiO(
                inner_steps=10, neumann_terms=10, neumann_lr=inner_lr, batch=64, **sizes
            )
        ended = minimized(problem, method, None, cost, 0.5)
        value = truth(problem, ended.x, problem.y0)[0]
        found = reach(ended)
        key = (math.inf if found is None else found, value if math.isfinite(value) else math.inf)
        if best is None or key < best[:2]:
            best = (*key, ended)
    assert best is not None
    return best[2]


def run(rule: str, bank: str, place: int, case: Case, references: References) -> Outcome:
    problem, exact, known = case.make(), case.exact(), references.of(case)
    tol = (1e-4 if bank == "smooth" else 1e-3) * known["norm"]
    cost = Cost(bank, problem)

    def phi(x: Tensor, *starts: Tensor) -> tuple[float, Tensor]:
        found = [truth(exact, x.to(exact.dtype), y.to(exact.dtype))[:2] for y in starts]
        return min(found, key=lambda pair: pair[0])

    def gap(value: float) -> float:
        known = references.of(case)
        return (value - known["best"]) / max(known["start"] - known["best"], 1e-300)

    def reach(ended: Ended) -> float | None:
        """The cost at the first point within 1 %, by bisection: Φ falls along the way."""
        low, high = 0, len(ended.way) - 1
        if not gap(phi(ended.way[high][1], ended.y)[0]) <= ENOUGH:
            return None
        while low < high:
            middle = (low + high) // 2
            solved = gap(phi(ended.way[middle][1], ended.y)[0]) <= ENOUGH
            low, high = (low, middle) if solved else (middle + 1, high)
        return ended.way[high][0]

    began = time.process_time()
    if rule == "l-bfgs-b":
        ended = quasi_newton(problem, tol, cost)
    elif rule == "grid":
        ended = grid(problem, cost, reach)
    else:
        method = None if rule == "default" else named(rule).algorithm()
        ended = minimized(problem, method, tol, cost)
    seconds = time.process_time() - began
    # Elsewhere y* is one, from any start.
    one = not (case.many or case.family in ("double well", "network") or "student" in case.name)
    value, h = phi(ended.x, ended.y, *([exact.y0] if one else []))
    if math.isfinite(value):
        references.found(case, value)
    size, risen = float(h.norm()), value - phi(exact.x0, exact.y0)[0]
    scale = references.of(case)["start"] - references.of(case)["best"]
    return Outcome(
        rule,
        bank,
        place,
        case.name,
        float(f"{gap(value):.3g}"),
        float(f"{max(0.0, risen - 1e-9 * abs(value)) / max(scale, 1e-300):.3g}"),
        ended.status,
        ended.status == "converged" and not size <= 2 * tol,
        size <= 2 * tol,
        round(ended.cost, 1),
        reach(ended),
        round(seconds, 2),
    )


def table(outcomes: list[Outcome]) -> Iterable[str]:
    numbers = ["problems", "solved", "elsewhere", "above", "converged", "false", "cost"]
    names = ["method", "bank", "half", *numbers, "× L-BFGS-B", "× grid"]
    yield "| " + " | ".join(names) + " |"
    yield "|---|---|---|" + "---:|" * 9
    for bank, rule in sorted({(o.bank, o.rule) for o in outcomes}):
        for half, odd in (("choosing", 0), ("judging", 1)):
            some = [o for o in outcomes if (o.rule, o.bank, o.place % 2) == (rule, bank, odd)]
            if some:
                figures = [
                    len(some),
                    sum(o.solved for o in some),
                    sum(o.stationary and not o.solved for o in some),
                    sum(o.above for o in some),
                    sum(o.status == "converged" for o in some),
                    sum(o.false for o in some),
                    _median([o.reach for o in some if o.reach is not None]),
                    *(_median(_ratios(some, outcomes, rival)) for rival in RIVALS),
                ]
                yield f"| {rule} | {bank} | {half} | " + " | ".join(map(str, figures)) + " |"


def _ratios(some: list[Outcome], outcomes: list[Outcome], rival: str) -> list[float]:
    known = {o.name: o.reach for o in outcomes if o.rule == rival and o.reach}
    return [o.reach / known[o.name] for o in some if o.reach is not None and o.name in known]


def _median(figures: list[float]) -> str:
    return f"{statistics.median(figures):.3g}" if figures else ""


def misses(outcomes: list[Outcome]) -> Iterable[str]:
    yield "| method | problem | half | gap | status | stationary |"
    yield "|---|---|---|---:|---|---|"
    for o in sorted(outcomes, key=lambda o: (o.rule, o.bank, o.place)):
        if o.rule not in RIVALS and (not o.solved or o.false or o.above):
            half = "judging" if o.place % 2 else "choosing"
            mark = " above its start" if o.above else " false" if o.false else ""
            how = f"{o.status}{mark}"
            yield f"| {o.rule} | {o.name} | {half} | {o.gap:.2g} | {how} | {o.stationary} |"


def line_of(outcome: Outcome) -> str:
    return json.dumps(asdict(outcome)) + "\n"


def answer(outcomes: list[Outcome]) -> str:
    """What `minimize(problem)` does, in a few sentences."""
    unseen = [o for o in outcomes if o.rule == "default" and o.place % 2 and o.bank != "fresh"]
    solved = sum(o.solved for o in unseen)
    other = sum(o.stationary and not o.solved for o in unseen)
    return (
        f"`minimize(problem)`, with no settings, solved {solved} of {len(unseen)} problems with a "
        "known solution that are kept for judging it; what failed among them, outside of the zoo, "
        "was seen while its rules were made. "
        f"On {other} more it ended at another stationary point. "
        f'It said "converged" wrongly {sum(o.false for o in unseen)} '
        "times."
    )


def page(outcomes: list[Outcome], rules: str) -> str:
    lines = [
        "# How often no settings are enough",
        "",
        answer(outcomes),
        "",
        "One row for each method, each bank of problems, and each half of a bank: the rules were",
        'chosen on one half and are judged on the other (in "fresh" both were looked at, in "zoo"',
        "neither). *Solved* is within 1 % of the best value known; *elsewhere* is another",
        'stationary point, verified; *false* is a wrong "converged".',
        "",
        *table(outcomes),
        "",
        "## What was not solved",
        "",
        *misses(outcomes),
        "",
        "## How it was measured",
        "",
        f"Made by `python benchmarks/auto.py`. {rules}",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    about, _, rules = (__doc__ or "").partition("\n\n    ")
    parser = argparse.ArgumentParser(description=about)
    names = ["default", *RIVALS, *registry()]
    parser.add_argument("--rule", action="append", choices=names, default=[])
    parser.add_argument("--forget", action="append", choices=names, default=[])
    parser.add_argument("--bank", action="append", choices=list(BANKS))
    parser.add_argument("--half", choices=("choosing", "judging"))
    parser.add_argument("--every", type=int, default=1, help="only each n-th problem of a half")
    parser.add_argument("--kept", type=Path, default=KEPT, help="outcomes so far")
    parser.add_argument("-o", "--output", type=Path, help="a page to write")
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = options.kept.read_text().splitlines() if options.kept.exists() else []
    outcomes = [Outcome(**json.loads(line)) for line in lines]
    outcomes = [o for o in outcomes if o.rule not in options.forget]
    done = {(o.rule, o.bank, o.name) for o in outcomes}
    references = References()
    asked = [
        (rule, bank, place, case)
        for bank in options.bank or BANKS
        for place, case in enumerate(BANKS[bank]())
        if options.half in (None, ("choosing", "judging")[place % 2])
        and place // 2 % options.every == 0
        for rule in dict.fromkeys([*options.rule, *options.forget])
        if (rule, bank, case.name) not in done
    ]
    options.kept.parent.mkdir(parents=True, exist_ok=True)
    if options.forget:
        options.kept.write_text("".join(map(line_of, outcomes)))
    for rule, bank, place, case in track(asked, "the bank", disable=not sys.stdout.isatty()):
        outcomes.append(run(rule, bank, place, case, references))
        with options.kept.open("a") as file:  # a killed run goes on from here
            file.write(line_of(outcomes[-1]))
    text = page(outcomes, " ".join(rules.partition("\n\n")[2].split()))
    print(text)
    if options.output is not None:
        options.output.write_text(text)


if __name__ == "__main__":
    main()
