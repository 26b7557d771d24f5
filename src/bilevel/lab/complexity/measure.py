"""What a method pays until it is ε-stationary."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bilevel.algorithms import Algorithm
from bilevel.lab.complexity.family import Family
from bilevel.lab.complexity.methods import Candidate
from bilevel.lab.complexity.oracle import FamilyOracle
from bilevel.lab.quantities import COUNTS
from bilevel.oracles import CountingOracle, Counts, View
from bilevel.record import Record

_PATIENCE = 3


@dataclass(frozen=True)
class Price(Record):
    """Outer steps and samples up to some ε; a call without data is one sample."""

    steps: int
    gc_f: int
    gc_g: int
    jv: int
    hv: int

    @property
    def total(self) -> int:
        return self.gc_f + self.gc_g + self.jv + self.hv

    @staticmethod
    def of(steps: int, counts: Counts) -> Price:
        return Price(steps, *(counts[f"{name}_samples"] for name in COUNTS))


@dataclass(frozen=True)
class Trial(Record):
    """One run.

    Args:
        label: of the candidate.
        prices: for each ε, from the greatest; None where it was not reached.
        ending: why the run stopped.
        steps: how many outer steps it took.
        calls: how often it asked the oracle for a derivative.
        last: ‖∇Φ‖², mean over the last half of the steps.
    """

    label: str
    prices: tuple[Price | None, ...]
    ending: str
    steps: int
    calls: int
    last: float


class LastHalf:
    """The mean of ‖∇Φ(x_k)‖² over the last half of the steps.

    It is the expectation for a point that is drawn from them. A first passage would reward
    oscillations, and the mean over all steps has the order 1/ε however fast the method is,
    because of its start.

    Example:
        >>> half = LastHalf()
        >>> [half.add(value) for value in (8.0, 4.0, 2.0, 1.0)]
        [8.0, 4.0, 3.0, 1.5]
    """

    def __init__(self) -> None:
        self._sums = [0.0]

    def add(self, value: float) -> float:
        """The mean once this value is there."""
        self._sums.append(self._sums[-1] + value)
        n = len(self._sums) - 1
        return (self._sums[n] - self._sums[n // 2]) / (n - n // 2)


def run(
    family: Family,
    candidate: Candidate,
    epsilons: Sequence[float],
    calls: int,
    total: float = math.inf,
) -> Trial:
    """Run until the smallest ε is reached.

    Args:
        family: the problem.
        candidate: the algorithm.
        epsilons: falling.
        calls: the most calls of the oracle, of any kind: the limit of time.
        total: the most samples, of any kind.
    """
    algorithm: Algorithm = candidate.algorithm
    oracle = CountingOracle(FamilyOracle(family))
    state, half = algorithm.init(oracle, family.x0, family.y0), LastHalf()
    prices: list[Price] = []
    ending = ""
    while not ending:
        mean = half.add(family.squared_gradient(state.x))
        counts = oracle.counts
        price = Price.of(state.step, counts)
        while len(prices) < len(epsilons) and mean <= epsilons[len(prices)]:
            prices.append(price)
        made = sum(counts[name] for name in COUNTS)
        ending = _ending(len(prices) == len(epsilons), mean, price.total > total, made > calls)
        if not ending:
            state, _ = algorithm.step(View.of(oracle, state.step), state)
    missing = [None] * (len(epsilons) - len(prices))
    return Trial(candidate.label, (*prices, *missing), ending, state.step, made, mean)


def _ending(reached: bool, mean: float, dearer: bool, late: bool) -> str:
    if reached:
        return "reached"
    if not math.isfinite(mean):
        return "diverged"
    if dearer:
        return "dearer than two others"
    return "limit" if late else ""


def race(
    family: Family, candidates: Sequence[Candidate], epsilons: Sequence[float], calls: int
) -> list[Trial]:
    """Run all candidates, each until it cannot be one of the two cheapest for any ε.

    So the cheapest is known with all of them, and with any one left out. A run that has paid more
    than two others needed for the smallest ε is dearer than both for every ε that it has not
    reached. Nor is one waited for that has made `_PATIENCE` times as many calls.
    """
    trials: list[Trial] = []
    lowest = [math.inf, math.inf]
    for candidate in candidates:
        trial = run(family, candidate, epsilons, calls, lowest[1])
        trials.append(trial)
        if (price := trial.prices[-1]) is not None:
            lowest = sorted([*lowest, price.total])[:2]
            calls = min(calls, _PATIENCE * trial.calls)
    return trials


def cheapest(trials: Sequence[Trial], number: int) -> tuple[str, Price] | None:
    """The candidate that paid least for the ε of this number, and its price."""
    found = [(trial.label, price) for trial in trials if (price := trial.prices[number])]
    return min(found, key=lambda item: item[1].total, default=None)


def trial_from_json(data: dict[str, Any]) -> Trial:
    """A trial as it was stored by `dataclasses.asdict`."""
    prices = tuple(None if price is None else Price(**price) for price in data["prices"])
    return Trial(**{**data, "prices": prices})
