"""Find gross errors in numbers, as a scikit-learn estimator."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse
from sklearn.base import RegressorMixin
from sklearn.utils import assert_all_finite, check_consistent_length, column_or_1d
from sklearn.utils.validation import check_is_fitted

from bilevel.apps.weighted_rows import best_half, weigh_rows
from bilevel.models.softmax.problem import add_bias
from bilevel.sklearn.linear import EXPERTS, HYPER_CLEANING, Array, OnNumbers, TakesTables


@dataclass(repr=False, eq=False)  # scikit-learn has its own
class HyperCleaningRegressor(RegressorMixin, TakesTables, OnNumbers):  # type: ignore[misc]
    """A regressor for data with wrong numbers in y, which tells which of them are wrong.

    Two methods, as of `HyperCleaner`. "experts": several models learn the numbers, each row is
    judged by models that did not see its number, and errors come from one of two laws, of ordinary
    ones and of gross ones. X may be a DataFrame with categories, dates, free text and gaps.
    "hyper-cleaning": a weight σ(λ_i) for each row is learned such that least squares with these
    weights does well on trusted rows; rows whose error is far above that of trusted rows are
    flagged and left out of the final fit. It is a linear model, of numbers that are scaled before,
    and flags rows for which a linear model is wrong, too.

    Args:
        method: "experts" or "hyper-cleaning".
        ridge, steps, patience, hold_back: of hyper-cleaning: the penalty on the coefficients, for y
            in units of its spread, the most outer steps, how many without gain end it, and which
            fraction of the trusted rows is held back, to stop in time.
        random_state: a seed or a RandomState.
        n_jobs: processors for the experts.
        verbose: above 0, the experts say what they do.

    Attributes:
        sample_weight_: σ(λ_i) of each row, or the probability that its number is right; 1 for
            trusted rows.
        label_issues_: which rows are flagged.
        likely_label_: the number that the model would give.
        findings_: of experts: all that was found, as `bilevel.cleaning.find_wrong_numbers` gives
            it.
        coef_, intercept_: the model of hyper-cleaning.

    Example:
        >>> import numpy as np
        >>> from sklearn.datasets import load_diabetes
        >>> from bilevel.sklearn import HyperCleaningRegressor
        >>> X, y = load_diabetes(return_X_y=True)
        >>> wrong = np.arange(len(y)) < 40
        >>> model = HyperCleaningRegressor(random_state=0).fit(X, np.where(wrong, y + 1000, y))
        >>> bool(model.label_issues_[wrong].all()), bool(model.label_issues_[~wrong].mean() < 0.01)
        (True, True)
    """

    method: str = EXPERTS
    ridge: float = 1e-3
    steps: int = 30
    patience: int = 2
    hold_back: float = 0.2
    random_state: Any = None
    n_jobs: int | None = None
    verbose: int = 0

    def fit(self, X: Any, y: Any, trusted: Any = None) -> Self:
        """Clean the numbers y of X.

        Args:
            X, y: rows and numbers, some of them wrong.
            trusted: the rows of X whose numbers are right, as a mask or by their numbers. In a
                pipeline: `pipe.fit(X, y, hypercleaningregressor__trusted=mask)`. Experts need none;
                without, the half of the rows that a linear model fits best counts as trusted for
                hyper-cleaning, with a warning.
        """
        methods = {EXPERTS: self._fit_experts, HYPER_CLEANING: self._fit_hyper_cleaning}
        methods[self._checked_method()](X, y, trusted)
        return self

    def _fit_experts(self, X: Any, y: Any, trusted: Any) -> None:
        from bilevel.apps.cleaning.numbers import find_wrong_numbers

        frame, values = self._frame(X, reset=True), column_or_1d(y, dtype=float, warn=True)
        check_consistent_length(frame, values)
        assert_all_finite(values, input_name="y")
        self._check_enough(len(values))
        mask = None if trusted is None else self._mask(trusted, len(values))
        self.findings_ = found = find_wrong_numbers(
            frame, values, trusted=mask, seed=self._seed(), jobs=self.n_jobs, progress=self._tell
        )
        self.n_iter_ = 2
        self.sample_weight_, self.label_issues_ = 1 - found.wrong, found.flagged
        self.likely_label_ = found.likely

    def _fit_hyper_cleaning(self, X: Any, y: Any, trusted: Any) -> None:
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
                stacklevel=3,
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

    def predict(self, X: Any) -> Array:
        """The number of each row."""
        check_is_fitted(self)
        if self.method == EXPERTS:
            return self.findings_.model.values(self._frame(X, reset=False))[0]
        return np.asarray(self._numbers(X, reset=False) @ self.coef_ + self.intercept_)
