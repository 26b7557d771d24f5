"""Find gross errors in numbers, as a scikit-learn estimator."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from bilevel.apps.weighted_rows import best_half, weigh_rows
from bilevel.models.softmax.problem import add_bias
from bilevel.sklearn.linear import Array, OnNumbers, TakesTrusted


@dataclass(repr=False, eq=False)  # scikit-learn has its own
class HyperCleaningRegressor(RegressorMixin, TakesTrusted, OnNumbers):  # type: ignore[misc]
    """Ridge regression for data with wrong numbers in y, which tells which of them are wrong.

    A weight σ(λ_i) for each row is learned such that least squares with these weights does well on
    trusted rows. Rows whose error is far above that of trusted rows are flagged and left out of the
    final fit. Scale the features before, in a pipeline.

    Args:
        ridge: the penalty on the coefficients, for y in units of its spread.
        steps: the most outer steps.
        patience: how many without gain end it.
        hold_back: which fraction of the trusted rows is held back, to stop in time.
        random_state: a seed or a RandomState; decides which.

    Attributes:
        sample_weight_: σ(λ_i) of each row; 1 for trusted rows.
        label_issues_: which rows are flagged.
        likely_label_: the number that the model would give.
        coef_, intercept_: the model.

    Example:
        >>> import numpy as np
        >>> from sklearn.datasets import load_diabetes
        >>> from bilevel.sklearn import HyperCleaningRegressor
        >>> X, y = load_diabetes(return_X_y=True)
        >>> wrong = np.arange(len(y)) < 40
        >>> noisy = np.where(wrong, y + 1000, y)
        >>> model = HyperCleaningRegressor(random_state=0)
        >>> model = model.fit(X / X.std(0), noisy, trusted=np.arange(300, 442))
        >>> bool(model.label_issues_[wrong].all()), bool(model.label_issues_[~wrong].mean() < 0.05)
        (True, True)
    """

    ridge: float = 1e-3
    steps: int = 30
    patience: int = 2
    hold_back: float = 0.2
    random_state: Any = None

    def fit(self, X: Any, y: Any, trusted: Any = None) -> Self:
        """Clean the numbers y of X.

        Args:
            X, y: rows and numbers, some of them wrong.
            trusted: the rows of X whose numbers are right, as a mask or by their numbers. In a
                pipeline: `pipe.fit(X, y, hypercleaningregressor__trusted=mask)`. Without, the half
                of the rows that a linear model fits best counts as trusted, with a warning.
        """
        X, y = self._numbers(X, y, y_numeric=True)
        rows = len(y)
        self._check_enough(rows)
        A = add_bias(X.toarray() if scipy.sparse.issparse(X) else X)
        y = np.asarray(y, A.dtype)
        # By the median, so that the gross errors do not set the unit.
        middle = float(np.median(y))
        spread = float(np.median(np.abs(y - middle))) or float(y.std()) or 1.0
        b = (y - middle) / spread
        if trusted is None:
            warnings.warn(
                f"no trusted rows: the half of the {rows} rows that a linear model fits best is "
                "taken for right. Name rows that you checked with trusted=",
                stacklevel=2,
            )
            mask = best_half(A, b, self.ridge)
        else:
            mask = self._some(trusted, rows)
        found = weigh_rows(
            A,
            b,
            mask,
            ridge=self.ridge,
            steps=self.steps,
            patience=self.patience,
            hold_back=self.hold_back,
            seed=self._seed(),
        )
        W = found.coefficients * spread
        self.coef_, self.intercept_ = W[:-1].copy(), float(W[-1]) + middle
        self.n_iter_ = len(found.held_back_loss)
        self.sample_weight_, self.label_issues_ = found.weights, found.flagged
        self.likely_label_ = A[:, :-1] @ self.coef_ + self.intercept_
        return self

    def predict(self, X: Any) -> Array:
        """The number of each row."""
        check_is_fitted(self)
        return np.asarray(self._numbers(X, reset=False) @ self.coef_ + self.intercept_)
