"""Rules by which claims are judged. Each says in its numbers what it compared.

A run is clearly ahead of another if the mean of the differences, seed by seed, exceeds their
standard deviation.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bilevel.lab.curves import Sample, averages, extents, finals, held, samples, times_to_fraction
from bilevel.lab.experiments.verdicts import Evidence, Finding, Verdict

_FRACTIONS = (0.9, 0.99)  # of the way from the start to the lowest value that any run reached


@dataclass(frozen=True)
class Fastest:
    """Whether `ours` makes 90 % and 99 % of the fall of each metric before all others."""

    ours: str
    metrics: tuple[str, ...]

    def __call__(self, evidence: Evidence) -> Finding:
        outcomes, numbers = [], []
        for metric in self.metrics:
            for fraction in _FRACTIONS:
                times = times_to_fraction(evidence.curves, metric, fraction)
                outcomes.append(_against_all(self.ours, times))
                what = f"seconds to {fraction:.0%} of the fall of the {_words(metric)}"
                numbers.append(f"{what}: {_listing(times)}")
        return Finding(Verdict.of(outcomes), "; ".join(numbers))


@dataclass(frozen=True)
class MostAccurate:
    """Whether `ours` has the highest test accuracy at the end of the budget."""

    ours: str
    metric: str = "test_accuracy"

    def __call__(self, evidence: Evidence) -> Finding:
        found = finals(evidence.curves, self.metric, evidence.seconds)
        errors = {label: _negative(sample) for label, sample in found.items()}
        numbers = _at_end(self.metric, evidence, found)
        return Finding(Verdict.of([_against_all(self.ours, errors)]), numbers)


@dataclass(frozen=True)
class EachBeats:
    """Whether each of `ours` has a lower metric than `rival`, averaged over the budget's time."""

    ours: tuple[str, ...]
    rival: str
    metric: str

    def __call__(self, evidence: Evidence) -> Finding:
        found = averages(evidence.curves, self.metric, evidence.seconds)
        outcomes = [found[label].is_below(found[self.rival]) for label in self.ours]
        return Finding(Verdict.of(outcomes), _over_time(self.metric, evidence, found))


@dataclass(frozen=True)
class Alike:
    """Whether `labels` differ little, as a share of the fall of the metric.

    The difference is that between the highest and the lowest mean, at the end of the budget and
    averaged over its time, whichever is greater: up to `little` confirms, up to `much` in part.
    """

    labels: tuple[str, ...]
    metric: str
    little: float = 0.05
    much: float = 0.2

    def __call__(self, evidence: Evidence) -> Finding:
        curves = {label: evidence.curves[label] for label in self.labels}
        fall = statistics.fmean(_falls(evidence, self.metric))
        means = [
            [sample.mean for sample in read(curves, self.metric, evidence.seconds).values()]
            for read in (finals, averages)
        ]
        shares = [(max(each) - min(each)) / fall for each in means]
        small, some = (max(shares) <= limit for limit in (self.little, self.much))
        verdict = Verdict.of([1] if small else [0] if some else [-1])
        numbers = (
            f"the {_words(self.metric)} of {', '.join(self.labels)} differs by {shares[0]:.1%} of "
            f"its fall at the end and by {shares[1]:.1%} on average over time (up to "
            f"{self.little:.0%} is little, up to {self.much:.0%} is some)"
        )
        return Finding(verdict, numbers)


@dataclass(frozen=True)
class SlowAndNoisy:
    """Whether `label` is the last to make 90 % of the fall, and spreads twice as much over seeds.

    The spread is the standard deviation over seeds, averaged over the second half of the time,
    compared with that of `reference`.
    """

    label: str
    reference: str
    metric: str

    def __call__(self, evidence: Evidence) -> Finding:
        times = times_to_fraction(evidence.curves, self.metric, _FRACTIONS[0])
        rivals = [sample for label, sample in times.items() if label != self.label]
        slow = all(sample.is_below(times[self.label]) == 1 for sample in rivals)
        own, other, spreads = _late_spreads(evidence, self.metric, self.label, self.reference)
        outcomes = [1 if slow else -1, 1 if own > 2 * other else -1]
        numbers = (
            f"seconds to {_FRACTIONS[0]:.0%} of the fall of the {_words(self.metric)}: "
            f"{_listing(times)}; {spreads}"
        )
        return Finding(Verdict.of(outcomes), numbers)


@dataclass(frozen=True)
class Ahead:
    """Whether `ours` has a higher accuracy than `rival`, averaged over the budget's time."""

    ours: str
    rival: str
    metrics: tuple[str, ...] = ("train_accuracy", "test_accuracy")

    def __call__(self, evidence: Evidence) -> Finding:
        outcomes, numbers = [], []
        for metric in self.metrics:
            found = averages(evidence.curves, metric, evidence.seconds)
            outcomes.append(found[self.rival].is_below(found[self.ours]))
            pair = {label: found[label] for label in (self.ours, self.rival)}
            numbers.append(_over_time(metric, evidence, pair))
        return Finding(Verdict.of(outcomes), "; ".join(numbers))


@dataclass(frozen=True)
class EndsAbove:
    """Whether each of `ours` has a higher accuracy than each of `rivals` at the budget's end."""

    ours: tuple[str, ...]
    rivals: tuple[str, ...]
    metric: str = "test_accuracy"

    def __call__(self, evidence: Evidence) -> Finding:
        found = finals(evidence.curves, self.metric, evidence.seconds)
        outcomes = [found[r].is_below(found[o]) for o in self.ours for r in self.rivals]
        named = {label: found[label] for label in (*self.ours, *self.rivals)}
        return Finding(Verdict.of(outcomes), _at_end(self.metric, evidence, named))


@dataclass(frozen=True)
class Steadier:
    """Whether `rival` drops from its best accuracy by more than `ours`, and spreads more.

    The drop of a run is the greatest fall below the best value before; the spread is as in
    `SlowAndNoisy`.
    """

    ours: str
    rival: str
    metric: str = "test_accuracy"

    def __call__(self, evidence: Evidence) -> Finding:
        both = {label: evidence.curves[label] for label in (self.ours, self.rival)}
        drops = samples(both, lambda curve: _drop(curve.series(self.metric)[1].tolist()))
        own, other, spreads = _late_spreads(evidence, self.metric, *both)
        outcomes = [drops[self.ours].is_below(drops[self.rival]), 1 if own < other else -1]
        numbers = (
            f"greatest drop of the {_words(self.metric)} below its best before: {_listing(drops)}; "
            f"{spreads}"
        )
        return Finding(Verdict.of(outcomes), numbers)


@dataclass(frozen=True)
class GainFalls:
    """Whether the lead of `ours` over its best rival falls from each experiment to the next.

    The lead is the difference of the metric averaged over the budget's time, as a share of the
    fall. Without a lead in the first experiment there is nothing to confirm.
    """

    ours: str
    metric: str
    order: tuple[str, ...]

    def __call__(self, evidence: Mapping[str, Evidence]) -> Finding:
        gains = {name: self._gain(evidence[name]) for name in self.order}
        pairs = zip(self.order, self.order[1:], strict=False)
        outcomes = [gains[later].is_below(gains[earlier]) for earlier, later in pairs]
        if gains[self.order[0]].mean <= 0:
            outcomes = [-1]
        what = f"lead over the best rival in the {_words(self.metric)}, as a share of its fall"
        return Finding(Verdict.of(outcomes), f"{what}: {_listing(gains)}")

    def _gain(self, evidence: Evidence) -> Sample:
        means = averages(evidence.curves, self.metric, evidence.seconds)
        own = means.pop(self.ours).values
        best = map(min, zip(*(sample.values for sample in means.values()), strict=True))
        falls = _falls(evidence, self.metric)
        return Sample(tuple((b - o) / f for b, o, f in zip(best, own, falls, strict=True)))


def _against_all(ours: str, samples: Mapping[str, Sample]) -> int:
    """1 if clearly below all others, −1 if clearly above one, else 0."""
    rivals = [sample for label, sample in samples.items() if label != ours]
    outcomes = {samples[ours].is_below(rival) for rival in rivals}
    return -1 if -1 in outcomes else 0 if 0 in outcomes else 1


def _falls(evidence: Evidence, metric: str) -> list[float]:
    """For each seed, from the start to the lowest value that any run reached."""
    return [start - lowest for start, lowest in extents(evidence.curves, metric)]


def _late_spreads(evidence: Evidence, metric: str, *pair: str) -> tuple[float, float, str]:
    """The mean spread over seeds in the second half of the time, of two labels and in words."""
    times = evidence.seconds * np.linspace(0.5, 1.0, 11)

    def spread(label: str) -> float:
        runs = [held(*curve.series(metric), times).tolist() for curve in evidence.curves[label]]
        return statistics.fmean(Sample(seeds).spread for seeds in zip(*runs, strict=True))

    one, two = map(spread, pair)
    words = f"{pair[0]} {one:.2g}, {pair[1]} {two:.2g}"
    return one, two, f"its spread over seeds in the second half: {words}"


def _drop(values: list[float]) -> float:
    best = itertools.accumulate(values, max)
    return max(top - value for top, value in zip(best, values, strict=True))


def _negative(sample: Sample) -> Sample:
    return Sample(tuple(-value for value in sample.values))


def _listing(samples: Mapping[str, Sample]) -> str:
    return ", ".join(f"{label} {sample}" for label, sample in samples.items())


def _at_end(metric: str, evidence: Evidence, samples: Mapping[str, Sample]) -> str:
    return f"{_words(metric)} after {evidence.seconds:g} s: {_listing(samples)}"


def _over_time(metric: str, evidence: Evidence, samples: Mapping[str, Sample]) -> str:
    return f"mean {_words(metric)} over {evidence.seconds:g} s: {_listing(samples)}"


def _words(metric: str) -> str:
    return metric.replace("_", " ")
