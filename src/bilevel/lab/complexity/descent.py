"""The instrument's truth: exact gradient descent on Φ, whose steps are known beforehand."""

from __future__ import annotations

from collections.abc import Sequence

from bilevel.lab.complexity.family import Family
from bilevel.lab.complexity.fits import Exponent, Point, powers
from bilevel.lab.complexity.measure import LastHalf
from bilevel.lab.complexity.studies import Cell, Study


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


def exact_powers(study: Study) -> tuple[Exponent, Exponent]:
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
    return Exponent.of([p for p, _, _ in fitted]), Exponent.of([q for _, q, _ in fitted])
