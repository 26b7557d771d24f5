"""The measured tables as one HTML page."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from bilevel import report
from bilevel.lab.complexity.family import Family, descent_order
from bilevel.lab.complexity.fits import Trials, exact_powers, fit
from bilevel.lab.complexity.measure import cheapest
from bilevel.lab.complexity.plots import page_plots
from bilevel.lab.complexity.studies import Cell, Study
from bilevel.lab.complexity.tables import COLUMNS, Line, Standing, heading, lines
from bilevel.lab.complexity.walls import BentWall
from bilevel.report import Block, Code, Facts, Notice, Page, Section, Table
from bilevel.theory import Constant, Constants, Kind, Plan, plan

_LEAD = (
    "Gradients, cross products and Hessian-vector products until ‖∇Φ‖² ≤ ε, on problems that are "
    "as hard as the theory allows. Powers of κ and of 1/ε are fitted by least squares in "
    "logarithms, with 95 % intervals over the seeds. The paper's orders are upper bounds."
)
_READING = (
    "paper: the order in the paper's table, without logarithms. theorem here: what its theorem "
    "gives for this family (with ρ = τ = 0, L_Φ is κ² and not κ³). family: what exact gradient "
    "descent must show with these settings. attains: the interval lies within 0.3 of the order, or "
    "reaches above it; within: it lies below that; above: all of it lies more than 0.3 above; not "
    "above: it reaches from further below to near the order; undecided: it holds the order "
    "and is wider than 1."
)
_INSTRUMENT = (
    "A check of the measurement: exact gradient descent on Φ must show the predicted powers. "
    "Methods with good hypergradients and a step of order 1/L_Φ follow it."
)
_HOW = (
    "A method has reached ε when the mean of ‖∇Φ(x_k)‖², in closed form, over the last half of its "
    "outer steps is at most ε. Evaluating it is not counted.",
    "Each method tries a few outer step sizes (stocBiO: batch sizes), and only the cheapest by "
    "the sum of all four counts is reported, for each κ, ε and seed. Loop counts scale as in the "
    "theorems. For stochastic methods, counts are in samples.",
    "Along an endless valley, ‖∇Φ‖² of gradient descent decays as a power of the steps, while a "
    "steep wall across it rules out steps much longer than 1/L_Φ. docs/complexity.md derives the "
    "family and states its limits.",
    "HV of stocBiO is κ⁶ε⁻² in the paper's table, but κ⁷ε⁻² by its proof (docs/errata.md, 2), and "
    "so κ⁶ε⁻² for ρ = τ = 0.",
)
_PLANS = ("aid-bio", "itd-bio", "stocbio")
_LETTERS = ("β", "D", "N", "Q", "S", "D_f", "D_g", "B")


def write_page(
    file: Path, studies: Sequence[Study], found: Mapping[str, Trials], command: str
) -> None:
    """Tables, plots, settings and the theorems' own numbers."""
    sections = [_section(study, found[study.name]) for study in studies]
    sections.append(Section("How it was measured", [*_HOW, Code("The command", command)]))
    Page("Complexity of bilevel methods, measured", _LEAD, sections).write(file)


def _section(study: Study, trials: Trials) -> Section:
    made = lines(study, trials)
    missing = any(line.fit is None or line.fit.missing for line in made)
    blocks: list[Block] = [
        *([Notice("Some runs did not reach ε; the verdicts say how many.")] if missing else []),
        _table(study, made),
        page_plots(study, trials),
        _instrument(study, trials),
        Facts({m.title: m.settings for m in study.methods}, "What was set"),
        _chosen(study, trials),
        _promises(study, trials),
    ]
    return Section(heading(study), blocks)


def _table(study: Study, made: Sequence[Line]) -> Table:
    ranges = (
        f"κ from {study.kappas[0]:g} to {study.kappas[-1]:g}, ε from {study.epsilons[0]:g} to "
        f"{study.epsilons[-1]:g}, {study.seeds} seeds."
    )
    return Table(ranges, COLUMNS, [_row(line) for line in made], note=_READING)


def _row(line: Line) -> list[report.Cell | str]:
    *texts, of_kappa, of_epsilon, verdict = line.texts
    powers = [report.Cell(of_kappa), report.Cell(of_epsilon)]
    if line.fit is not None:
        powers = [report.Cell(str(e), e.mean) for e in (line.fit.kappa, line.fit.epsilon)]
    return [*texts, *powers, report.Cell(verdict, strong=verdict.startswith(Standing.ABOVE))]


def _instrument(study: Study, trials: Trials) -> Table:
    """Outer steps: what must come out, what exact descent shows, and what the methods show."""
    a = descent_order()
    rows = [
        ["predicted", f"{study.steepness + 2 * a - 2:.2f}", f"{a:.2f}"],
        ["exact gradient descent, β = 1/L_Φ", *map(str, exact_powers(study))],
    ]
    for method in study.methods:
        found = fit(study, trials, method, "steps")
        powers = ["–", "–"] if found is None else [str(found.kappa), str(found.epsilon)]
        rows.append([method.title, *powers])
    return Table("Outer steps", ["", "power of κ", "power of 1/ε"], rows, note=_INSTRUMENT)


def _chosen(study: Study, trials: Trials) -> Table:
    last = len(study.epsilons) - 1
    rows = []
    for method in study.methods:
        row = [method.title]
        for kappa in study.kappas:
            own = [trials[method.name, kappa, seed] for seed in range(study.seeds)]
            labels = Counter(best[0] for runs in own if (best := cheapest(runs, last)))
            row.append(", ".join(f"{name} ({n})" for name, n in labels.most_common()) or "none")
        rows.append(row)
    return Table(
        f"The cheapest candidate for ε = {study.epsilons[-1]:g}, and for how many seeds",
        ["method", *(f"κ = {kappa:g}" for kappa in study.kappas)],
        rows,
    )


def _promises(study: Study, trials: Trials) -> Table:
    """The theorems' numbers at the greatest κ and the smallest ε beside the measured ones."""
    epsilon, kappa, rows = study.epsilons[-1], study.kappas[-1], []
    for method in (method for method in study.methods if method.name in _PLANS):
        made = promise(Cell(study, method, kappa, 0).family(), method.name, epsilon)
        best = cheapest(trials[method.name, kappa, 0], len(study.epsilons) - 1)
        letters = [f"{row.letter} = {row.value:.3g}" for row in made.rows if row.letter in _LETTERS]
        steps = "–" if best is None else f"{best[1].steps:,}"
        rows.append([method.title, f"{made.steps:,}", steps, ", ".join(letters)])
    return Table(
        f"The settings of the theorems at κ = {kappa:g} and ε = {epsilon:g} (seed 0)",
        ["method", "K of the theorem", "K measured", "other settings of the theorem"],
        rows,
        note="By bilevel.theory.plan with the constants of the family: worst-case settings.",
    )


_GAP = 10.0  # Φ(x₀) − inf Φ: the valley lies below 1/s, and the wall begins near its bottom


def constants(family: Family) -> Constants:
    """L = 1 and the others, in closed form."""
    slopes = math.sqrt(0.25 + 1.0 + float(family.d @ family.d))  # valley, wall, bystanders
    values = {
        "mu": 1 / family.kappa,
        "L_g": 1.0,
        "cross": 1.0,
        "L_fx": 0.0,
        "L_fy": 1.0,
        "L_xx": 0.0,
        "M": slopes,
        "rho": 1.0 if isinstance(family.wall, BentWall) else 0.0,
        "tau": 0.0,
        "tau_x": 0.0,
        "sigma": _noise(family),
    }
    return Constants(**{n: Constant(v, Kind.BOUND, "of the family") for n, v in values.items()})


def _noise(family: Family) -> float:
    """σ at the start."""
    if family.noise is None:
        return 0.0
    n, y = family.noise, family.y0
    rows = n.h * family.eigenvalues * y - n.j * (family.J @ family.x0) - n.c
    return float(rows.square().sum(1).mean().sqrt())


def promise(family: Family, method: str, epsilon: float) -> Plan:
    """The plan of the method's theorem: "aid-bio", "itd-bio" or "stocbio"."""
    return plan(constants(family), method, epsilon, gap=_GAP, y_distance=0.0)
