"""What claims compare: each judge reads its comparisons from the curves, a number for each seed.

A number is above zero where the claim is right; `rule` decides by them. What was measured before
the first outer step of a run does not count, and a comparison with a method that was left out
has no numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bilevel.lab.curves import Curve, Vector, held, spent_until, stepped
from bilevel.lab.experiments.readings import COSTS as COSTS
from bilevel.lab.experiments.readings import Read, falls, levels, means, pairs, reached, words
from bilevel.lab.experiments.rule import Gain
from bilevel.lab.experiments.verdicts import Evidence, Finding

JUDGED = 0.95  # of the fall from the start to the lowest value that any run of the seed reached
_SHOWN = (0.9, JUDGED, 0.99)
_POINTS = 200


@dataclass(frozen=True)
class Fastest:
    """Whether `ours` makes 95 % of the fall of each metric at less cost than each other run."""

    ours: str
    metrics: tuple[str, ...]
    cost: str = "CPU seconds"
    rivals: tuple[str, ...] = ()

    def __call__(self, evidence: Evidence) -> Finding:
        rivals = self.rivals or tuple(label for label in evidence.curves if label != self.ours)
        gains = [
            _faster(evidence, self.ours, rival, metric, self.cost)
            for metric in self.metrics
            for rival in rivals
        ]
        numbers = [
            f"{self.cost} to {share:.0%} of the fall of the {words(metric)}: "
            + ", ".join(reached(evidence, label, metric, self.cost, share) for label in
                        (self.ours, *rivals))
            for metric in self.metrics
            for share in _SHOWN
        ]  # fmt: skip
        return Finding(tuple(gains), "; ".join(numbers))


@dataclass(frozen=True)
class EndsAbove:
    """Whether each of `ours` has a higher accuracy than each of `rivals` at the budget's end.

    Without rivals, these are all others.
    """

    ours: tuple[str, ...]
    rivals: tuple[str, ...] = ()
    metric: str = "test_accuracy"

    def __call__(self, evidence: Evidence) -> Finding:
        rivals = self.rivals or tuple(label for label in evidence.curves if label not in self.ours)

        def end(curve: Curve) -> float:
            return float(stepped(curve, self.metric)[1][-1])

        gains = [_higher(evidence, one, other, end) for one in self.ours for other in rivals]
        what = f"{words(self.metric)} after {evidence.seconds:.4g} s"
        return Finding(tuple(gains), means(evidence, what, (*self.ours, *rivals), end))


@dataclass(frozen=True)
class Ahead:
    """Whether each of `ours` is ahead of `rival` in each metric, averaged over the common time.

    That is the time from the moment when both have made an outer step to the budget's end; of
    samples, to the end of the one that paid less.
    """

    ours: tuple[str, ...]
    rival: str
    metrics: tuple[str, ...]
    better: int = 1  # 1 where high is good, −1 where low is
    cost: str = "CPU seconds"

    def __call__(self, evidence: Evidence) -> Finding:
        gains = [
            Gain(
                f"{one} against {self.rival}, {words(metric)}",
                tuple(
                    self.better * lead
                    for lead in _leads(evidence, one, self.rival, metric, COSTS[self.cost])
                ),
            )
            for metric in self.metrics
            for one in self.ours
        ]
        return Finding(
            tuple(gains),
            f"means over the {self.cost} from the first step on, within {evidence.seconds:.4g} s",
        )


@dataclass(frozen=True)
class Alike:
    """Whether no two of `labels` differ by more than `little`, as a share of the metric's fall.

    Compared are the means over the common time, in both directions.
    """

    labels: tuple[str, ...]
    metric: str
    little: float = 0.05

    def __call__(self, evidence: Evidence) -> Finding:
        gains = [
            Gain(
                f"{self.little:.0%} − ({one} − {other})",
                tuple(self.little - lead for lead in _shares(evidence, one, other, self.metric)),
            )
            for one, other in itertools.permutations(self.labels, 2)
        ]
        return Finding(tuple(gains), f"shares of the fall of the {words(self.metric)}")


@dataclass(frozen=True)
class SlowAndNoisy:
    """Whether `label` makes 95 % of the fall later than `reference`, and spreads more over seeds.

    The spread of a seed is its distance from the mean over seeds, averaged over the second half of
    the time.
    """

    label: str
    reference: str
    metric: str

    def __call__(self, evidence: Evidence) -> Finding:
        cost = "CPU seconds"
        slower = _faster(evidence, self.reference, self.label, self.metric, cost)
        noisier = _noisier(evidence, self.label, self.reference, self.metric)
        both = (self.label, self.reference)
        times = ", ".join(reached(evidence, one, self.metric, cost, JUDGED) for one in both)
        return Finding((slower, noisier), f"{cost} to {JUDGED:.0%} of the fall: {times}")


@dataclass(frozen=True)
class Steadier:
    """Whether `rival` drops further below its best before than `ours`, and spreads more."""

    ours: str
    rival: str
    metric: str = "test_accuracy"

    def __call__(self, evidence: Evidence) -> Finding:
        def drop(curve: Curve) -> float:
            values = stepped(curve, self.metric)[1]
            return float((np.maximum.accumulate(values) - values).max())

        drops = _higher(evidence, self.rival, self.ours, drop)
        noisier = _noisier(evidence, self.rival, self.ours, self.metric)
        shown = means(evidence, "greatest drop", (self.ours, self.rival), drop)
        return Finding((drops, noisier), shown)


@dataclass(frozen=True)
class GainFalls:
    """Whether `ours` leads each rival in the first experiment, and by less in each later one.

    The lead is the difference of the metric's means over the common time, as a share of its fall.
    """

    ours: str
    rivals: tuple[str, ...]
    metric: str
    order: tuple[str, ...]

    def __call__(self, evidence: Mapping[str, Evidence]) -> Finding:
        gains = []
        for rival in self.rivals:
            leads = [_shares(evidence[name], rival, self.ours, self.metric) for name in self.order]
            gains.append(Gain(f"lead of {self.ours} over {rival} at {self.order[0]}", leads[0]))
            for (one, two), (here, there) in zip(
                itertools.pairwise(self.order), itertools.pairwise(leads), strict=True
            ):
                fall = tuple(a - b for a, b in zip(here, there, strict=False))
                gains.append(Gain(f"fall of the lead over {rival} from {one} to {two}", fall))
        return Finding(tuple(gains), f"shares of the fall of the {words(self.metric)}")


def _faster(evidence: Evidence, ours: str, rival: str, metric: str, cost: str) -> Gain:
    """ln(cost of the rival / ours) until the judged share of the fall, bounds where one stops."""
    goals = levels(evidence, metric, JUDGED)
    prices = COSTS[cost]
    spent = [
        (spent_until(one, metric, at, prices), spent_until(two, metric, at, prices))
        for (one, two), at in zip(pairs(evidence, ours, rival), goals, strict=False)
    ]
    values = tuple(log_ratio(*both) for both in spent)
    bounds = sum(not (mine[1] and theirs[1]) for mine, theirs in spent)
    return Gain(f"{ours} against {rival}, {words(metric)}", values, "ratio", bounds)


def log_ratio(ours: tuple[float, bool], rival: tuple[float, bool]) -> float:
    """ln(rival/ours); an end without arrival is a lower bound, and counts where it decides.

    >>> log_ratio((1.0, True), (2.0, True)) == math.log(2), log_ratio((1.0, True), (0.5, False))
    (True, 0.0)
    """
    (mine, arrived), (theirs, other_arrived) = ours, rival
    if not (mine > 0 and theirs > 0):
        return 0.0
    value = math.log(theirs / mine)
    if arrived and other_arrived:
        return value
    return max(value, 0.0) if arrived else min(value, 0.0) if other_arrived else 0.0


def _higher(evidence: Evidence, one: str, other: str, read: Read) -> Gain:
    both = pairs(evidence, one, other)
    return Gain(f"{one} − {other}", tuple(read(a) - read(b) for a, b in both))


def _shares(evidence: Evidence, one: str, other: str, metric: str) -> tuple[float, ...]:
    """For each seed, the lead as a share of the metric's fall; NaN where no run fell."""
    leads, heights = _leads(evidence, one, other, metric), falls(evidence, metric)
    both = zip(leads, heights, strict=False)
    return tuple(lead / fall if fall > 0 else math.nan for lead, fall in both)


def _leads(
    evidence: Evidence,
    one: str,
    other: str,
    metric: str,
    prices: Sequence[str] = COSTS["CPU seconds"],
) -> list[float]:
    """For each seed, the mean of `one` minus that of `other` while both have made a step."""
    end = evidence.seconds if prices == COSTS["CPU seconds"] else None
    return [_lead(a, b, metric, prices, end) for a, b in pairs(evidence, one, other)]


def _lead(a: Curve, b: Curve, metric: str, prices: Sequence[str], until: float | None) -> float:
    (one, of_a), (two, of_b) = stepped(a, metric, prices), stepped(b, metric, prices)
    start, end = max(one[0], two[0]), min(one[-1], two[-1]) if until is None else until
    if not start < end:
        return 0.0
    places = start + (end - start) * (np.arange(_POINTS) + 0.5) / _POINTS
    return float((held(one, of_a, places) - held(two, of_b, places)).mean())


def _noisier(evidence: Evidence, one: str, other: str, metric: str) -> Gain:
    places, both = evidence.seconds * np.linspace(0.5, 1.0, 11), pairs(evidence, one, other)
    spreads = [_spreads(runs, metric, places) for runs in zip(*both, strict=True)]
    values = tuple(map(float, spreads[0] - spreads[1])) if both else ()
    return Gain(f"late spread of {one} − {other}, {words(metric)}", values)


def _spreads(curves: Sequence[Curve], metric: str, places: Vector) -> Vector:
    runs = np.stack([held(*stepped(curve, metric), places) for curve in curves])
    found: Vector = np.abs(runs - runs.mean(0)).mean(1)
    return found
