"""The rule of verdicts: intervals over seeds, and what they decide. See docs/reproductions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

ERROR = 0.015  # of all claims of a page together; light tails treble it at five seeds
LEAST_SEEDS = 5
_MOST_SEEDS = 1000


class Verdict(StrEnum):
    """What the runs say of a claim."""

    CONFIRMED = "confirmed"
    CONTRADICTED = "contradicted"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Interval:
    """A mean over seeds, and what it may as well be."""

    mean: float
    low: float
    high: float

    @property
    def margin(self) -> float:
        """How many half widths the mean lies above zero: beyond 1, zero is outside.

        >>> Interval(2.0, 1.0, 3.0).margin, Interval(-1.0, -math.inf, math.inf).margin
        (2.0, -0.0)
        >>> Interval(0.0, 0.0, 0.0).margin, Interval(1.0, 1.0, 1.0).margin
        (0.0, inf)
        """
        half = max(self.mean - self.low, self.high - self.mean)
        if half:
            return self.mean / half
        return math.copysign(math.inf, self.mean) if self.mean else 0.0

    def holding(self, others: Sequence[Interval]) -> Interval:
        """The same mean with an interval that holds those of others, too."""
        every = (self, *others)
        return Interval(self.mean, min(e.low for e in every), max(e.high for e in every))

    def __str__(self) -> str:
        return f"{self.mean:.2f} [{self.low:.2f}, {self.high:.2f}]"


@dataclass(frozen=True)
class Gain:
    """One comparison, a number for each seed, above zero where the claim is right.

    Args:
        what: is compared with what.
        values: by seed; none where one of the two was not run.
        kind: "ratio" for logarithms of ratios.
        bounds: for how many seeds the value is only what it must at least be, as one of the two
            never arrived.
    """

    what: str
    values: tuple[float, ...]
    kind: Literal["difference", "ratio"] = "difference"
    bounds: int = 0

    def interval(self, error: float) -> Interval:
        return interval(self.values, error)

    def text(self, error: float) -> str:
        """With its interval; a ratio as a factor.

        Example:
            >>> Gain("a against b", (0.7, 0.69, 0.68, 0.7, 0.69), "ratio").text(0.05)
            'a against b × 2 [1.98, 2.02]'
            >>> Gain("a against b", (0.7, 0.69, 0.68, 0.7, 0.69), "ratio", bounds=2).text(0.05)
            'a against b × 2 [1.98, 2.02] (bounds in 2 of 5 seeds)'
            >>> Gain("a against b", (0.0,) * 5, "ratio").text(0.05)
            'a against b: no seed tells them apart'
        """
        if not self.values:
            return f"{self.what}: not run"
        if not any(self.values):  # equal, or neither of the two reached the level
            return f"{self.what}: no seed tells them apart"
        found, ratio = self.interval(error), self.kind == "ratio"
        numbers = found.mean, found.low, found.high
        mean, low, high = map(math.exp, numbers) if ratio else numbers
        effect = f"× {mean:.3g}" if ratio else f"{mean:+.3g}"
        if math.isfinite(found.high):
            effect += f" [{low:.3g}, {high:.3g}]"
        if self.bounds:
            effect += f" (bounds in {self.bounds} of {len(self.values)} seeds)"
        return f"{self.what} {effect}"


def student(values: Sequence[float], error: float = 0.05) -> Interval:
    """Student's interval, infinite for a single value.

    Example:
        >>> print(student([1.0, 2.0, 3.0]))
        2.00 [-0.48, 4.48]
    """
    mean, n = float(np.mean(values)), len(values)
    if n < 2:
        return Interval(mean, -math.inf, math.inf)
    half = _half(n, error) * float(np.std(values, ddof=1))
    return Interval(mean, mean - half, mean + half)


def interval(values: Sequence[float], error: float) -> Interval:
    """The least interval that holds Student's and the expanded percentile bootstrap's.

    With n values and t = t_{n−1}(1 − error/2), the bootstrap's quantiles are taken at
    Φ(−√(n/(n − 1)) t) for few seeds; where that is less likely than the extremes, they are the
    extremes. Values that are all equal say only that their signs agree. This happens by chance
    with probability 2^(1−n), and counts only if that is below `error`.

    References: Hesterberg, What Teachers Should Know about the Bootstrap, The American
    Statistician 69, 2015; Davison & Hinkley, Saddlepoint approximations in resampling methods,
    Biometrika 75, 1988.

    Example:
        >>> interval([1.0, 2.0, 3.0, 4.0, 5.0], 0.05).low > 0
        True
        >>> interval([1.0] * 5, 0.05), interval([1.0] * 10, 0.05).low
        (Interval(mean=1.0, low=-inf, high=inf), 1.0)
    """
    return _interval(tuple(sorted(values)), error)  # the order of the seeds says nothing


@lru_cache(maxsize=1024)  # a verdict asks for the same one three times
def _interval(values: tuple[float, ...], error: float) -> Interval:
    found = np.asarray(values, float)
    n, mean = len(found), float(found.mean()) if len(found) else math.nan
    if n < 2 or not np.isfinite(found).all():
        return Interval(mean, -math.inf, math.inf)
    if np.ptp(found) == 0:
        sure = 2.0 ** (1 - n) <= error
        return Interval(mean, mean, mean) if sure else Interval(mean, -math.inf, math.inf)
    aim = -math.sqrt(n / (n - 1)) * _quantile(n, error)
    low, high = _lowest_mean(found, aim), -_lowest_mean(-found, aim)
    return student(values, error).holding([Interval(mean, low, high)])


@cache
def _quantile(n: int, error: float) -> float:
    from scipy import stats

    return float(stats.t.ppf(1 - error / 2, n - 1))


def _lowest_mean(values: NDArray[np.float64], aim: float) -> float:
    """Below it the mean of n draws from n values lies with the probability Φ(aim).

    By a saddlepoint: resamples cannot show what happens once in a million. `aim` is negative.
    """
    from scipy import optimize, special

    n, low = len(values), float(values.min())
    if special.log_ndtr(aim) <= n * math.log((values == low).mean()):
        return low
    scaled = (values - values.mean()) / np.ptp(values)  # first: squares of small ones vanish
    spread = float(np.ptp(values) * scaled.std())
    scaled /= scaled.std()

    def tilted(s: float) -> tuple[float, float]:
        """The mean under weights e^{s·value}, and the normal quantile of being below it."""
        powers = s * scaled
        weights = np.exp(powers - powers.max())
        share = float(weights.mean())
        weights /= n * share
        mean = float(weights @ scaled)
        root = -math.sqrt(2 * n * (s * mean - float(powers.max()) - math.log(share)))
        slope = s * math.sqrt(n * float(weights @ (scaled - mean) ** 2))
        return mean, root + math.log(slope / root) / root if slope else math.inf

    far = aim / math.sqrt(n)  # where it lies for normal values
    for _ in range(20):
        if tilted(far)[1] < aim:
            at = optimize.brentq(lambda s: tilted(s)[1] - aim, far, -1e-3)
            return max(low, float(values.mean() + spread * tilted(at)[0]))
        far *= 1.25
    return low


def decide(gains: Sequence[Gain], error: float) -> Verdict:
    """A claim that holds if every one of its comparisons does.

    To confirm, each interval must lie above zero, which needs no correction; to contradict, one
    below zero is enough, so that their number divides the error. One that was not run keeps the
    claim from being confirmed.

    Example:
        >>> ahead, behind = (1.0, 1.1, 0.9, 1.0, 1.2), (-1.0, -1.1, -0.9, -1.0, -1.2)
        >>> [str(decide([Gain("", values)], 0.05)) for values in (ahead, behind, ahead[:4])]
        ['confirmed', 'contradicted', 'undecided']
    """
    if min((len(gain.values) for gain in gains if gain.values), default=0) < LEAST_SEEDS:
        return Verdict.UNDECIDED
    if all(gain.interval(error).low > 0 for gain in gains):
        return Verdict.CONFIRMED
    if any(gain.interval(error / len(gains)).high < 0 for gain in gains):
        return Verdict.CONTRADICTED
    return Verdict.UNDECIDED


def weakest(gains: Sequence[Gain], error: float) -> str:
    """What the verdict hangs on: the comparison that says least for the claim, or most against it.

    With the interval that decided: a contradiction's has the error divided by their number.

    Example:
        >>> ahead, level = (1.0, 1.1, 0.9, 1.0, 1.2), (2.0, -2.0, 1.0, -1.5, 0.5)
        >>> weakest([Gain("a − b", ahead), Gain("a − c", level), Gain("a − d", ())], 0.05)
        'a − c +0 [-2.11, 2.11]; weakest of 3, 1 not run'
    """
    run = [gain for gain in gains if gain.values]
    if not run:
        return "not run"
    if decide(gains, error) is Verdict.CONTRADICTED:
        error /= len(gains)
    # Of equal ones the first is meant, whatever the last bits of a fit are on this machine.
    found = min(run, key=lambda gain: round(gain.interval(error).margin, 9)).text(error)
    left = f", {len(gains) - len(run)} not run" if len(run) < len(gains) else ""
    return f"{found}; weakest of {len(gains)}{left}" if len(gains) > 1 else found


def seeds_needed(gains: Sequence[Gain], error: float) -> int | None:
    """How many seeds would decide if means stayed as they are and intervals shrank as Student's.

    None where seeds alone would not: a method was not run, no seed tells two of them apart and
    none lies behind, or more than a thousand are needed.

    Example:
        >>> seeds_needed([Gain("", (1.0, 2.0, 3.0, -1.0, 0.0))], 0.05)
        13
    """
    behind = [gain for gain in gains if gain.values and gain.interval(error).mean < 0]
    if behind:  # one is enough, at its share of the error
        found = [_enough(gain, error / len(gains)) for gain in behind]
        return min((n for n in found if n is not None), default=None)
    needed = [_enough(gain, error) for gain in gains]
    known = [n for n in needed if n is not None]
    return max(known) if known and len(known) == len(needed) else None


def _enough(gain: Gain, error: float) -> int | None:
    n, now = len(gain.values), gain.interval(error)
    if n < 2 or not now.mean:
        return None
    reach = now.mean - now.low if now.mean > 0 else now.high - now.mean
    if math.isinf(reach):  # all equal: their sign counts
        return max(LEAST_SEEDS, math.ceil(1 - math.log2(error)))
    for more in range(max(n, LEAST_SEEDS), _MOST_SEEDS + 1):
        if reach * _half(more, error) < abs(now.mean) * _half(n, error):
            return more
    return None


def _half(n: int, error: float) -> float:
    """Of Student's interval, for a spread of one."""
    return _quantile(n, error) / math.sqrt(n)
