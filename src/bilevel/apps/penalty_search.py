"""The search of `bilevel.apps.cross_fitted`: one level for all, then what is particular."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import scipy.sparse

from bilevel.apps.class_sums import ClassSums
from bilevel.apps.holdout import Array
from bilevel.apps.linear_fits import ClassFit, Fit, NumberFit, Rows

STEP = 1.5  # between levels
_WORTHWHILE = 0.999  # of the loss: what gains less is not worth a lighter penalty
_FIRST, _STEPS = 1.0, 9  # the first level, above the log of a row's variance, and the most steps
_FARTHEST = 7.0  # |δ|
_TINY = 1e-12  # before a logarithm
# The steps of a fit: as many as scikit-learn's, on folds of sparse rows, on large data.
_FULL, _QUICK, _ROUGH = 100, 30, 10


@dataclass(frozen=True)
class Task:
    """What is to be fitted, and how it is judged.

    Args:
        rows: all of them.
        classes: how many, None for numbers.
        of_row: the fold of each row; those of the last number are never judged.
        folds: how many there are, the last number.
        judged: how many of them are judged.
        groups: the group of each feature.
        shrinkage: τ.
        is_large: a fold is judged by a rough fit on one other, and all features share a penalty.
        jobs: threads.
        tell: is told how it goes.
    """

    rows: Rows
    classes: int | None
    of_row: Array
    folds: int
    judged: int
    groups: Array
    shrinkage: float
    is_large: bool
    jobs: int
    tell: Callable[[str], None]


class Search:
    """With the scores of naive Bayes as further columns, or without."""

    def __init__(self, task: Task, sums: ClassSums | None) -> None:
        self._task, self._sums = task, sums
        folds = [k for k in range(task.folds) if (task.of_row == k).any()]
        self._parts = [self._part(k) for k in folds[: task.judged]] if len(folds) > 1 else []
        self._weights = np.concatenate([test.weights for _, test in self._parts] or [np.ones(1)])
        self.level = _size(task.rows)
        self.losses = np.full(len(self._weights), np.nan)
        self.is_particular, self.calls = False, 0

    def find_level(self, start: float | None = None) -> None:
        """From heavy penalties to light ones, which take longer, while the loss falls.

        Args:
            start: the first level; by default one that is rather too heavy.
        """
        if not self._parts:  # all rows are copies of one
            return
        self.level = self.level + _FIRST if start is None else start
        self.losses = self._at(self.level)
        if not self._walk(-STEP):
            self._walk(STEP)

    def _walk(self, step: float) -> bool:
        """On as long as it is worthwhile; whether it was at all."""
        start = self.level
        for _ in range(_STEPS):
            losses = self._at(self.level + step)
            if self._weights @ losses >= _WORTHWHILE * (self._weights @ self.losses):
                break
            self.level, self.losses = self.level + step, losses
        return self.level != start

    def _at(self, level: float) -> Array:
        return self._judge(lambda fit: self._solve(fit, level))

    def find_what_is_particular(self) -> None:
        """Whether penalties of their own lower the loss."""
        if not self._parts or self._task.is_large or np.isinf(self._task.shrinkage):
            return

        def solve(fit: Fit) -> None:
            self._solve(fit, self.level)
            self._particular(fit)

        losses = self._judge(solve)
        if self._weights @ losses < self._weights @ self.losses:
            self.losses, self.is_particular = losses, True

    def is_better_than(self, other: Search) -> bool:
        """By more than a standard error."""
        gain = other.losses - self.losses
        mean = np.average(gain, weights=self._weights)
        return bool(mean * self._weights.sum() > np.sqrt(self._weights @ (gain - mean) ** 2))

    @property
    def loss(self) -> float:
        """Cross-validated, of a row."""
        return float(np.average(self.losses, weights=self._weights))

    def fit_all(self) -> tuple[Array, Array, Array]:
        """λ of each feature, coefficients and intercept."""
        rows, p = self._task.rows, self._task.rows.features.shape[1]
        if self._sums is not None:
            rows = rows.beside(self._sums.scores_within(set()))
        fit = self._fit(rows, _FULL)
        self._solve(fit, self.level)
        own = self._particular(fit) if self.is_particular else np.zeros(p)
        W = fit.coefficients[:, :p]
        if self._sums is not None:
            W = W + fit.coefficients[:, p:] @ self._sums.weights(set()).T
        return self.level + own[:p], W, fit.intercept

    def _part(self, k: int) -> tuple[Fit, Rows]:
        """A fit without a fold, and the rows of this."""
        rows, of_row, test = self._task.rows, self._task.of_row, self._task.of_row == k
        train = np.isin(of_row, [k + 1, self._task.folds]) if self._task.is_large else ~test
        fitted, judged = rows.take(train), rows.take(test)
        if self._task.is_large and scipy.sparse.issparse(fitted.features):
            seen = np.unique(fitted.features.indices)
        else:
            seen = np.arange(fitted.features.shape[1])
        parts = fitted.columns(seen), judged.columns(seen)
        if self._sums is not None:
            scores = self._sums.scores_within({k})[train], self._sums.scores(judged.features, {k})
            parts = parts[0].beside(scores[0]), parts[1].beside(scores[1])
        steps = _QUICK if scipy.sparse.issparse(rows.features) else _FULL
        return self._fit(parts[0], steps), parts[1]

    def _fit(self, rows: Rows, steps: int) -> Fit:
        if self._task.classes is None:
            return NumberFit(rows)
        return ClassFit(rows, self._task.classes, _ROUGH if self._task.is_large else steps)

    def _judge(self, solve: Callable[[Fit], object]) -> Array:
        """The loss of each row by a fit that did not see it."""

        def of_part(part: tuple[Fit, Rows]) -> Array:
            solve(part[0])
            return part[0].losses(part[1])

        self.calls += 1
        if self._task.jobs == 1:
            found = [of_part(part) for part in self._parts]
        else:
            with ThreadPoolExecutor(self._task.jobs) as pool:
                found = list(pool.map(of_part, self._parts))
        losses = np.concatenate(found)
        mean = np.average(losses, weights=self._weights)
        self._task.tell(f"{self.calls} fits of all folds, cross-validated loss {mean:.5g}")
        return losses

    def _solve(self, fit: Fit, level: float, own: Array | float = 0.0) -> None:
        """The scores of naive Bayes share a penalty of one between them, whatever the level."""
        if self._sums is not None:
            more = self._sums.outputs
            of_features = np.full(fit.coefficients.shape[1] - more, own)
            own = np.append(of_features, np.full(more, -np.log(more) - level))
        fit.solve(level, own)

    def _particular(self, fit: Fit) -> Array:
        """δ of each feature, and the fit with it, after that without it."""
        groups, level = self._task.groups, np.exp(self.level)
        h, W = fit.curvature[: len(groups)], fit.coefficients[:, : len(groups)]
        known, size = (h / (h + level)).sum(1), level * np.square(W).sum(0)
        size *= known.sum() / max(size.sum(), _TINY)
        drawn = self._task.shrinkage * fit.outputs
        top, bottom = (np.bincount(groups, part) + drawn for part in (known, size))
        ratio = np.log(np.maximum(top, _TINY)) - np.log(np.maximum(bottom, _TINY))
        own: Array = np.clip(ratio, -_FARTHEST, _FARTHEST)[groups]
        self._solve(fit, self.level, own)
        return own


def _size(rows: Rows) -> float:
    """log Σ_j v_j, with v_j the variance of a feature."""
    share, A = rows.weights / rows.weights.sum(), rows.features
    squares = A.power(2) if scipy.sparse.issparse(A) else np.square(A)
    total = float((share @ squares).sum() - np.square(share @ A).sum())
    return float(np.log(total)) if total > 0 else 0.0
