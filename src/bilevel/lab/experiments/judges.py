"""Rules by which claims are judged. Each says in its numbers what it compared.

A run is clearly ahead of another if the mean of the differences, seed by seed, exceeds their
standard deviation.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from bilevel.lab.experiments.curves import (
    Histories,
    Sample,
    finals,
    mean_over_time,
    series,
    times_to_fraction,
    values_at,
)
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
                times = times_to_fraction(evidence.histories, metric, fraction)
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
        found = finals(evidence.histories, self.metric, evidence.seconds)
        errors = {label: _negative(sample) for label, sample in found.items()}
        numbers = f"{_words(self.metric)} after {evidence.seconds:g} s: {_listing(found)}"
        return Finding(Verdict.of([_against_all(self.ours, errors)]), numbers)


@dataclass(frozen=True)
class EachBeats:
    """Whether each of `ours` has a lower metric than `rival`, averaged over the budget's time."""

    ours: tuple[str, ...]
    rival: str
    metric: str

    def __call__(self, evidence: Evidence) -> Finding:
        averages = _averages(evidence, self.metric)
        outcomes = [averages[label].is_below(averages[self.rival]) for label in self.ours]
        verdict = Verdict.of(outcomes)
        what = f"mean {_words(self.metric)} over {evidence.seconds:g} s"
        return Finding(verdict, f"{what}: {_listing(averages)}")


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
        histories = {label: evidence.histories[label] for label in self.labels}
        fall = statistics.fmean(_falls(evidence.histories, self.metric).values())
        shares = [
            (max(s.mean for s in found.values()) - min(s.mean for s in found.values())) / fall
            for found in (
                finals(histories, self.metric, evidence.seconds),
                _averages(Evidence(histories, evidence.seconds), self.metric),
            )
        ]
        worst = max(shares)
        verdict = (
            Verdict.CONFIRMED
            if worst <= self.little
            else Verdict.PARTLY
            if worst <= self.much
            else Verdict.CONTRADICTED
        )
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
        times = times_to_fraction(evidence.histories, self.metric, _FRACTIONS[0])
        rivals = [sample for label, sample in times.items() if label != self.label]
        slow = all(sample.is_below(times[self.label]) == 1 for sample in rivals)
        own, other = (
            _late_spread(evidence, label, self.metric) for label in (self.label, self.reference)
        )
        outcomes = [1 if slow else -1, 1 if own > 2 * other else -1]
        numbers = (
            f"seconds to {_FRACTIONS[0]:.0%} of the fall of the {_words(self.metric)}: "
            f"{_listing(times)}; its spread over seeds in the second half: {self.label} "
            f"{own:.2g}, {self.reference} {other:.2g}"
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
            averages = _averages(evidence, metric)
            outcomes.append(averages[self.rival].is_below(averages[self.ours]))
            pair = {label: averages[label] for label in (self.ours, self.rival)}
            numbers.append(f"mean {_words(metric)} over {evidence.seconds:g} s: {_listing(pair)}")
        return Finding(Verdict.of(outcomes), "; ".join(numbers))


@dataclass(frozen=True)
class EndsAbove:
    """Whether each of `ours` has a higher accuracy than each of `rivals` at the budget's end."""

    ours: tuple[str, ...]
    rivals: tuple[str, ...]
    metric: str = "test_accuracy"

    def __call__(self, evidence: Evidence) -> Finding:
        found = finals(evidence.histories, self.metric, evidence.seconds)
        outcomes = [found[r].is_below(found[o]) for o in self.ours for r in self.rivals]
        named = {label: found[label] for label in (*self.ours, *self.rivals)}
        numbers = f"{_words(self.metric)} after {evidence.seconds:g} s: {_listing(named)}"
        return Finding(Verdict.of(outcomes), numbers)


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
        drops = {
            label: Sample.of(
                {
                    seed: _drop(series(h, self.metric)[1])
                    for seed, h in evidence.histories[label].items()
                }
            )
            for label in (self.ours, self.rival)
        }
        own, other = (_late_spread(evidence, label, self.metric) for label in drops)
        outcomes = [drops[self.ours].is_below(drops[self.rival]), 1 if own < other else -1]
        numbers = (
            f"greatest drop of the {_words(self.metric)} below its best before: {_listing(drops)}; "
            f"its spread over seeds in the second half: {self.ours} {own:.2g}, {self.rival} "
            f"{other:.2g}"
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
        falls = _falls(evidence.histories, self.metric)
        gains = {}
        for seed, fall in falls.items():
            means = {
                label: mean_over_time(runs[seed], self.metric, evidence.seconds)
                for label, runs in evidence.histories.items()
            }
            own = means.pop(self.ours)
            gains[seed] = (min(means.values()) - own) / fall
        return Sample.of(gains)


def _against_all(ours: str, samples: Mapping[str, Sample]) -> int:
    """1 if clearly below all others, −1 if clearly above one, else 0."""
    rivals = [sample for label, sample in samples.items() if label != ours]
    outcomes = {samples[ours].is_below(rival) for rival in rivals}
    return -1 if -1 in outcomes else 0 if 0 in outcomes else 1


def _averages(evidence: Evidence, metric: str) -> dict[str, Sample]:
    return {
        label: Sample.of(
            {seed: mean_over_time(h, metric, evidence.seconds) for seed, h in runs.items()}
        )
        for label, runs in evidence.histories.items()
    }


def _falls(histories: Histories, metric: str) -> dict[int, float]:
    """By seed, from the start to the lowest value that any run reached."""
    seeds = next(iter(histories.values()))
    values = {
        seed: [series(runs[seed], metric)[1] for runs in histories.values()] for seed in seeds
    }
    return {seed: max(v[0] for v in runs) - min(map(min, runs)) for seed, runs in values.items()}


def _late_spread(evidence: Evidence, label: str, metric: str) -> float:
    times = [evidence.seconds * (0.5 + 0.05 * i) for i in range(11)]
    runs = [values_at(h, metric, times) for h in evidence.histories[label].values()]
    return statistics.fmean(Sample(seeds).spread for seeds in zip(*runs, strict=True))


def _drop(values: list[float]) -> float:
    best = itertools.accumulate(values, max)
    return max(top - value for top, value in zip(best, values, strict=True))


def _negative(sample: Sample) -> Sample:
    return Sample(tuple(-value for value in sample.values))


def _listing(samples: Mapping[str, Sample]) -> str:
    return ", ".join(f"{label} {sample}" for label, sample in samples.items())


def _words(metric: str) -> str:
    return metric.replace("_", " ")
