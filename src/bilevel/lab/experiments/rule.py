"""The rule of verdicts: intervals over seeds, and what they decide. See docs/reproductions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

ERROR = 0.015  # of all claims of a page together; light tails treble it at five seeds
LEAST_SEEDS = 5
_RESAMPLES = 2000


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


@dataclass(frozen=True)
class Gain:
    """One comparison, a number for each seed, above zero where the claim is right.

    Args:
        what: is compared with what.
        values: by seed; none where one of the two was not run.
        kind: "ratio" for logarithms of ratios.
    """

    what: str
    values: tuple[float, ...]
    kind: Literal["difference", "ratio"] = "difference"

    def interval(self, error: float) -> Interval:
        return interval(self.values, error)

    def text(self, error: float) -> str:
        """With its interval; a ratio as a factor.

        Example:
            >>> Gain("a against b", (0.7, 0.69, 0.68, 0.7, 0.69), "ratio").text(0.05)
            'a against b × 2 [1.98, 2.02]'
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
        effect = f"{self.what} × {mean:.3g}" if ratio else f"{self.what} {mean:+.3g}"
        return f"{effect} [{low:.3g}, {high:.3g}]" if math.isfinite(found.high) else effect


def interval(values: Sequence[float], error: float) -> Interval:
    """The least interval that holds Student's and the expanded percentile bootstrap's.

    With n values and t = t_{n−1}(1 − error/2), the bootstrap's quantiles are taken at
    Φ(−√(n/(n − 1)) t) for few seeds; where that is below what resamples can show, they are the
    extremes. Values that are all equal say only that their signs agree: this happens by chance
    with probability 2^(1−n), and is taken at its word only if that is below `error`.

    Reference: Hesterberg, What Teachers Should Know about the Bootstrap, The American
    Statistician 69, 2015.

    Example:
        >>> interval([1.0, 2.0, 3.0, 4.0, 5.0], 0.05).low > 0
        True
        >>> interval([1.0] * 5, 0.05), interval([1.0] * 10, 0.05).low
        (Interval(mean=1.0, low=-inf, high=inf), 1.0)
    """
    found = np.asarray(values, float)
    n, mean = len(found), float(found.mean()) if len(found) else math.nan
    if n < 2 or not np.isfinite(found).all():
        return Interval(mean, -math.inf, math.inf)
    if np.ptp(found) == 0:
        sure = 2.0 ** (1 - n) <= error
        return Interval(mean, mean, mean) if sure else Interval(mean, -math.inf, math.inf)
    t, tail = _quantiles(n, error)
    half = t * float(found.std(ddof=1)) / math.sqrt(n)
    if tail * _RESAMPLES < 1:
        low, high = float(found.min()), float(found.max())
    else:
        low, high = np.quantile(found[_resamples(n)].mean(1), [tail, 1 - tail]).tolist()
    return Interval(mean, min(low, mean - half), max(high, mean + half))


@cache
def _quantiles(n: int, error: float) -> tuple[float, float]:
    from scipy import stats

    t = float(stats.t.ppf(1 - error / 2, n - 1))
    return t, float(stats.norm.cdf(-math.sqrt(n / (n - 1)) * t))


@cache
def _resamples(n: int) -> NDArray[np.int64]:
    """The same for all: a verdict must not depend on luck."""
    return np.random.default_rng(0).integers(n, size=(_RESAMPLES, n))


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
