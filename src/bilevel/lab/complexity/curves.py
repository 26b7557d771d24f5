"""Counts as curves: the mean over seeds, and their range."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bilevel.lab.complexity.fits import Trials, points
from bilevel.lab.complexity.methods import Method
from bilevel.lab.complexity.studies import Study

AXES = {"kappa": "κ", "epsilon": "1/ε"}


@dataclass(frozen=True)
class Curve:
    """At each place the geometric mean, the lowest and the highest seed."""

    x: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]


def curve(study: Study, trials: Trials, method: Method, count: str, axis: str) -> Curve:
    """A count against κ for the smallest ε, or against 1/ε for the greatest κ.

    Args:
        study, trials: what was measured.
        method: whose.
        count: which.
        axis: "kappa" or "epsilon".
    """
    found = points(study, trials, method, count)
    if axis == "kappa":
        kept = [(p.kappa, p.count) for p in found if p.epsilon == study.epsilons[-1]]
    else:
        kept = [(1 / p.epsilon, p.count) for p in found if p.kappa == study.kappas[-1]]
    places = sorted({place for place, _ in kept})
    groups = [[value for x, value in kept if x == place] for place in places]
    means = [float(np.exp(np.mean(np.log(group)))) for group in groups]
    return Curve(places, means, list(map(min, groups)), list(map(max, groups)))
