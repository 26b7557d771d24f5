"""The outer problem of `bilevel.apps.cross_fitted`: which penalties there are, and their search."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize
import scipy.sparse

from bilevel.apps.fold_fits import Fit
from bilevel.apps.holdout import Array

_LEVELS = (
    11.0,
    8.0,
    5.0,
    2.0,
    -1.0,
    -4.0,
)  # of η above the log of the variance, tried first
_WORTHWHILE = 1e-4  # of the loss: an outer step that gains less is the last
_STEEP = 1e3  # the first loss in L-BFGS-B's eyes: its first step is then of length one
_SMALLEST = 1e-12  # of a variance, relative to the mean


@dataclass(frozen=True)
class Space:
    """λ as a linear function of θ = (η, ζ, η of naive Bayes, δ of each unit)."""

    spread: Array  # log v_j about its mean
    start: float  # log of the mean of v
    unit: Array  # of each feature
    scores: int  # columns of naive Bayes

    @staticmethod
    def of(features: Any, weights: Array, groups: Array | None, scores: int) -> Space:
        share = weights / weights.sum()
        squares = features.power(2) if scipy.sparse.issparse(features) else np.square(features)
        mean, square = (np.asarray(share @ part).astype(float) for part in (features, squares))
        v = square - mean**2
        level = float(v.mean()) or 1.0
        spread = np.log(np.maximum(v / level, _SMALLEST))
        varies = v > _SMALLEST * level
        middle = spread[varies].mean() if varies.any() else 0.0
        unit = np.arange(len(v)) if groups is None else np.unique(groups, return_inverse=True)[1]
        return Space(np.where(varies, spread - middle, 0.0), float(np.log(level)), unit, scores)

    @property
    def shared(self) -> int:
        return 3 if self.scores else 2

    @property
    def size(self) -> int:
        return self.shared + int(self.unit.max()) + 1

    def first(self, level: float) -> Array:
        theta = np.zeros(self.size)
        theta[0] = self.start + level
        return theta

    def penalties(self, theta: Array) -> Array:
        own = theta[0] + theta[1] * self.spread + theta[self.shared :][self.unit]
        return np.append(own, np.full(self.scores, theta[2])) if self.scores else own

    def pull(self, slope: Array) -> Array:
        """A derivative by λ (and the bias) as one by θ."""
        p = len(self.spread)
        own = slope[:p]
        shared = [own.sum(), own @ self.spread, slope[p : p + self.scores].sum()][: self.shared]
        return np.append(shared, np.bincount(self.unit, own, self.size - self.shared))

    @property
    def is_drawn(self) -> Array:
        """Which of θ are drawn towards zero: all but the levels."""
        return ~np.isin(np.arange(self.size), [0, *range(2, self.shared)])

    @property
    def bounds(self) -> list[tuple[float, float]]:
        shared = [(self.start - 9, self.start + 14), (-1.5, 1.5), (-9.0, 9.0)][: self.shared]
        return shared + [(-6.0, 6.0)] * (self.size - self.shared)


@dataclass
class Search:
    """The outer problem: first one level for all, on a grid, then everything, by L-BFGS."""

    space: Space
    fits: list[Fit]
    total: float
    shrinkage: float
    jobs: int
    tell: Callable[[str], None]
    calls: int = 0
    common: float = float("nan")
    best: float = float("nan")

    def run(self, steps: int) -> Array:
        if not self.fits:  # all rows are copies of one
            return self.space.first(0.0)
        theta = self._level()
        if steps == 0:
            self.best = self.common
            return theta
        # In units in which the curvature of the shrinkage is one, whatever τ is.
        unit = np.where(self.space.is_drawn, max(1.0, self.shrinkage) ** -0.5, 1.0)

        def value(u: Array) -> tuple[float, Array]:
            found, slope = self._value(unit * u)
            return found, unit * slope

        found = scipy.optimize.minimize(
            value,
            theta / unit,
            jac=True,
            method="L-BFGS-B",
            bounds=np.array(self.space.bounds) / unit[:, None],
            options={"maxiter": steps, "maxfun": steps + 5, "ftol": _WORTHWHILE},
        )
        theta = np.asarray(unit * found.x)
        self.best = self._mean(Fit.loss, theta)
        return theta

    def _level(self) -> Array:
        """From heavy to light, as long as it gains."""
        best, chosen = float("inf"), 0.0
        for level in _LEVELS:
            value = self._mean(Fit.loss, self.space.first(level))
            if value >= best:
                break
            best, chosen = value, level
        self.common = best
        return self.space.first(chosen)

    def _value(self, theta: Array) -> tuple[float, Array]:
        found = self._each(Fit.slope, theta)
        value = sum(part for part, _ in found) / self.total
        slope = self.space.pull(sum(part for _, part in found) / self.total)
        drawn = np.where(self.space.is_drawn, theta, 0.0)
        strength = self.shrinkage / self.total
        self.tell(f"{self.calls} fits of all folds, cross-validated loss {value:.5g}")
        penalised = value + strength * float(drawn @ drawn) / 2
        unit = _STEEP / self.common
        return unit * penalised, unit * (slope + strength * drawn)

    def _mean(self, ask: Callable[[Fit, Array], float], theta: Array) -> float:
        return float(sum(self._each(ask, theta)) / self.total)

    def _each(self, ask: Callable[[Fit, Array], Any], theta: Array) -> list[Any]:
        self.calls += 1
        penalties = self.space.penalties(theta)
        if self.jobs == 1:
            return [ask(fit, penalties) for fit in self.fits]
        with ThreadPoolExecutor(self.jobs) as pool:
            return list(pool.map(lambda fit: ask(fit, penalties), self.fits))
