"""Powers of κ and of 1/ε from measured prices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bilevel.lab.complexity.family import Family
from bilevel.lab.complexity.measure import LastHalf, Trial, cheapest
from bilevel.lab.complexity.methods import Method
from bilevel.lab.complexity.studies import Cell, Study
from bilevel.lab.experiments.rule import Interval, student
from bilevel.lab.quantities import COUNTS

Trials = dict[tuple[str, float, int], list[Trial]]  # by method's name, κ and seed


@dataclass(frozen=True)
class Fit:
    """count = C κ^p ε^−q.

    Args:
        kappa: p, a mean over seeds with an interval: Student's of 95 %, or wider.
        epsilon: q, likewise.
        missing: how many (κ, ε, seed) were not reached, and so left out.
        measured: how many were.
        misfit: the root mean squared residual, as a factor.
    """

    kappa: Interval
    epsilon: Interval
    missing: int
    measured: int
    misfit: float


@dataclass(frozen=True)
class Point:
    """What one seed paid."""

    kappa: float
    epsilon: float
    seed: int
    count: float
    label: str


def points(study: Study, trials: Trials, method: Method, count: str) -> list[Point]:
    """What the cheapest candidates paid, where ε was reached: a count, or "steps"."""
    found = []
    for kappa in study.kappas:
        for seed in range(study.seeds):
            for number, epsilon in enumerate(study.epsilons):
                best = cheapest(trials[method.name, kappa, seed], number)
                if best is not None:  # a count of 0 has no logarithm
                    found.append(Point(kappa, epsilon, seed, max(1, best[1][count]), best[0]))
    return found


def powers(found: Sequence[Point]) -> tuple[float, float, float]:
    """p, q and the misfit by least squares in logarithms.

    Example:
        >>> grid = [Point(k, e, 0, 3 * k**2 / e, "") for k in (2.0, 4.0) for e in (1.0, 0.1)]
        >>> [round(number, 6) for number in powers(grid)]
        [2.0, 1.0, 1.0]
    """
    A = np.array([[1.0, math.log(p.kappa), -math.log(p.epsilon)] for p in found])
    b = np.log([p.count for p in found])
    solution, *_ = np.linalg.lstsq(A, b, rcond=None)
    residual = float(np.sqrt(np.mean((A @ solution - b) ** 2)))
    return float(solution[1]), float(solution[2]), math.exp(residual)


def fit(study: Study, trials: Trials, method: Method, count: str) -> Fit | None:
    """A fit for each seed, with intervals that hold those with any one candidate left out.

    None where some seed has too few points. A candidate without which less is reached is not left
    out: that would compare other points.
    """
    whole = _fit(study, trials, method, count)
    if whole is None:
        return None
    own = [runs for (name, _, _), runs in trials.items() if name == method.name]
    labels = {trial.label for runs in own for trial in runs}
    parts = [_fit(study, without(label, trials), method, count) for label in sorted(labels)]
    same = [part for part in parts if part is not None and part.measured == whole.measured]
    return replace(
        whole,
        kappa=whole.kappa.holding([part.kappa for part in same]),
        epsilon=whole.epsilon.holding([part.epsilon for part in same]),
    )


def without(label: str, trials: Trials) -> Trials:
    """The same trials, without one candidate."""
    return {key: [run for run in runs if run.label != label] for key, runs in trials.items()}


def _fit(study: Study, trials: Trials, method: Method, count: str) -> Fit | None:
    found = points(study, trials, method, count)
    fits = powers_by_seed(study, found)
    if fits is None:
        return None
    whole = len(study.kappas) * len(study.epsilons) * study.seeds
    return Fit(
        kappa=student([p for p, _, _ in fits]),
        epsilon=student([q for _, q, _ in fits]),
        missing=whole - len(found),
        measured=len(found),
        misfit=float(np.mean([misfit for _, _, misfit in fits])),
    )


def powers_by_seed(study: Study, found: Sequence[Point]) -> list[tuple[float, float, float]] | None:
    """p, q and the misfit for each seed; None where some seed has too few points."""
    by_seed = [[p for p in found if p.seed == seed] for seed in range(study.seeds)]
    enough = all(
        len({p.kappa for p in own}) > 1 and len({p.epsilon for p in own}) > 1 for own in by_seed
    )
    return [powers(own) for own in by_seed] if enough else None


def fits(study: Study, trials: Trials) -> dict[tuple[str, str], Fit | None]:
    """By method's name and count, with "steps" for the outer steps."""
    return {
        (method.name, count): fit(study, trials, method, count)
        for method in study.methods
        for count in ("steps", *COUNTS)
    }


def exact_steps(family: Family, epsilons: Sequence[float]) -> list[int]:
    """After how many steps of 1/L_Φ along −∇Φ each ε is reached, as it is for the methods."""
    (along, across), half = family.x0.tolist(), LastHalf()
    step, reached, k = 1 / family.smoothness, list[int](), 0
    while True:
        down, sideways = family.gradient(along, across)
        mean = half.add(down * down + sideways * sideways)
        while len(reached) < len(epsilons) and mean <= epsilons[len(reached)]:
            reached.append(k)
        if len(reached) == len(epsilons):
            return reached
        along, across, k = along - step * down, across - step * sideways, k + 1


def exact_powers(study: Study) -> tuple[Interval, Interval]:
    """The powers of κ and 1/ε that the steps of exact descent show on a study's problems."""
    fitted = []
    for seed in range(study.seeds):
        found = []
        for kappa in study.kappas:
            family = Cell(study, study.methods[0], kappa, seed).family()
            steps = exact_steps(family, study.epsilons)
            found += [
                Point(kappa, epsilon, seed, max(1, count), "")
                for epsilon, count in zip(study.epsilons, steps, strict=True)
            ]
        fitted.append(powers(found))
    return student([p for p, _, _ in fitted]), student([q for _, q, _ in fitted])
