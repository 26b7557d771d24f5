"""Linear models with one penalty per feature or group, as scikit-learn estimators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import RegressorMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.validation import check_is_fitted

from bilevel.apps.cross_fitted import CrossFitted, cross_fitted
from bilevel.sklearn.linear import Array, LinearSoftmax, OnNumbers


class _CrossFitted(OnNumbers):
    """What both estimators hand to the engine, and keep of what it found."""

    groups: Any
    folds: int
    shrinkage: float
    n_jobs: int | None
    verbose: int

    def _learn(
        self, X: Any, labels: Array, weights: Array, classes: int | None, naive_bayes: bool = False
    ) -> CrossFitted:
        self._check_enough(X.shape[0])
        if self.folds < 2:
            raise ValueError(f"folds must be at least 2, got {self.folds}")
        if not self.shrinkage >= 0:
            raise ValueError(f"shrinkage must not be negative, got {self.shrinkage}")
        found = cross_fitted(
            X,
            labels,
            classes=classes,
            weights=weights,
            groups=self._groups(X.shape[1]),
            folds=self.folds,
            shrinkage=self.shrinkage,
            naive_bayes=naive_bayes,
            seed=self._seed(),
            jobs=effective_n_jobs(self.n_jobs),
            tell=self._tell,
        )
        self.log_penalties_, self.cv_loss_ = found.log_penalties, found.loss
        self.n_iter_ = found.calls
        return found

    def _groups(self, features: int) -> Array | None:
        if self.groups is None:
            return None
        groups = np.asarray(self.groups)
        if groups.shape != (features,):
            raise ValueError(
                f"groups must name a group for each of the {features} features, got shape "
                f"{groups.shape}"
            )
        return groups

    def _tell(self, text: str) -> None:
        if self.verbose:
            print(f"[{type(self).__name__}] {text}")


@dataclass(repr=False, eq=False)  # scikit-learn has its own
class PenalizedLogisticRegression(LinearSoftmax, _CrossFitted):
    """Softmax regression with an L2 penalty for each feature (or group).

    min Σ_i s_i ℓ(W; a_i, b_i) + ½ Σ_j exp(λ_j) ‖W_j‖². Cross-validation of the log-loss finds one
    level for all; then each λ_j follows the size of its feature's coefficients, drawn to the
    level, if that lowers the loss. From columns that are never negative (counts of words,
    TF-IDF, categories) naive Bayes may be learned, too, and the regression learns what that
    leaves over; the sum is still linear. Give features of about the same scale.

    Args:
        groups: for each feature the name or number of its group, for one penalty a group.
        folds: of the cross-validation. For large problems (5 million stored entries times classes)
            one fold is judged by a fit on another, and the level alone is learned.
        shrinkage: how strongly penalties are drawn to their common level, as if so many more
            features of the usual size were in each group; infinite for one penalty.
        naive_bayes: whether to try it; the cross-validated loss decides.
        class_weight: None, "balanced" or a dict, as everywhere in scikit-learn.
        n_jobs: threads, each for a fold at a time.
        verbose: above 0, say how it goes.
        random_state: a seed or a RandomState; decides the folds.

    Attributes:
        log_penalties_: λ_j of each feature; large means nearly switched off.
        cv_loss_: the cross-validated log-loss at these.
        classes_, coef_, intercept_: the model; of two classes one row, as scikit-learn has it.
        n_iter_: how often all folds were fitted.

    Example:
        >>> from sklearn.datasets import load_digits
        >>> from bilevel.sklearn import PenalizedLogisticRegression
        >>> X, y = load_digits(return_X_y=True)
        >>> model = PenalizedLogisticRegression(random_state=0).fit(X[:500] / 16, y[:500])
        >>> model.log_penalties_.shape, bool(model.score(X[500:] / 16, y[500:]) > 0.9)
        ((64,), True)
    """

    groups: Any = None
    folds: int = 5
    shrinkage: float = 3.0
    naive_bayes: bool = True
    class_weight: Any = None
    n_jobs: int | None = None
    verbose: int = 0
    random_state: Any = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn the penalties and the model.

        Args:
            X, y: rows of numbers (an array, a sparse matrix or a DataFrame) and their classes.
            sample_weight: a weight for each row; 2 is as good as two copies.
        """
        X, y = self._numbers(X, y)
        counts, weights = self._weighed(sample_weight, X)
        X, y = X[counts], y[counts]
        labels = self._numbered(y)
        weights = weights * compute_sample_weight(self.class_weight, y)
        found = self._learn(X, labels, weights, len(self.classes_), self.naive_bayes)
        self.coef_, self.intercept_ = found.coefficients, found.intercept
        return self


@dataclass(repr=False, eq=False)
class PenalizedRidge(RegressorMixin, _CrossFitted):  # type: ignore[misc]
    """Least squares with an L2 penalty for each feature (or group).

    min ½ Σ_i s_i (a_i'w − b_i)² + ½ Σ_j exp(λ_j) w_j², as in `PenalizedLogisticRegression`.

    Args:
        groups, folds, shrinkage, n_jobs, verbose, random_state: as there.

    Attributes:
        log_penalties_: λ_j of each feature; large means nearly switched off.
        cv_loss_: half the cross-validated mean square, in units of y's variance.
        coef_, intercept_: the model.
        n_iter_: how often all folds were fitted.

    Example:
        >>> from sklearn.datasets import load_diabetes
        >>> from bilevel.sklearn import PenalizedRidge
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = PenalizedRidge(random_state=0).fit(X[:300], y[:300])
        >>> model.coef_.shape, bool(model.score(X[300:], y[300:]) > 0.4)
        ((10,), True)
    """

    groups: Any = None
    folds: int = 5
    shrinkage: float = 3.0
    n_jobs: int | None = None
    verbose: int = 0
    random_state: Any = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn the penalties and the model; see `PenalizedLogisticRegression.fit`."""
        X, y = self._numbers(X, y, y_numeric=True)
        counts, weights = self._weighed(sample_weight, X)
        X, y = X[counts], np.asarray(y[counts], float)
        middle = float(np.average(y, weights=weights))
        scale = float(np.sqrt(np.average((y - middle) ** 2, weights=weights))) or 1.0
        found = self._learn(X, (y - middle) / scale, weights, None)
        self.coef_ = found.coefficients[0] * scale
        self.intercept_ = float(found.intercept[0]) * scale + middle
        return self

    def predict(self, X: Any) -> Array:
        """The number of each row."""
        check_is_fitted(self)
        return np.asarray(self._numbers(X, reset=False) @ self.coef_ + self.intercept_)
