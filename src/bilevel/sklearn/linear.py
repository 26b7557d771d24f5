"""What the estimators share: checked input, and a linear model as scikit-learn expects it."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
import scipy.special
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from bilevel.errors import quoted, short
from bilevel.models.softmax.problem import add_bias

Array = np.ndarray[Any, Any]
DTYPES = (np.float64, np.float32)
EXPERTS, HYPER_CLEANING = "experts", "hyper-cleaning"
_FEWEST = 4  # rows, so that each part of a split has two
_HINT = (
    "Texts and categories must become numbers first, such as by make_pipeline(TfidfVectorizer(), "
    "...) or a ColumnTransformer with OneHotEncoder()."
)


class OnNumbers(BaseEstimator):  # type: ignore[misc]
    """An estimator whose X is a matrix of numbers, dense or sparse, or a DataFrame of such."""

    random_state: Any

    def _numbers(self, X: Any, y: Any = "no_validation", **options: Any) -> Any:
        """`validate_data`, with a hint for those who give it texts."""
        try:
            return validate_data(self, X, y, accept_sparse="csr", dtype=DTYPES, **options)
        except ValueError as error:
            if "could not convert string" not in str(error):
                raise
            raise ValueError(f"{error}. {_HINT}") from error

    def _weighed(self, sample_weight: Any, X: Any) -> tuple[Array, Array]:
        """Which rows count, and the weights of these."""
        weights = _check_sample_weight(sample_weight, X, dtype=float, ensure_non_negative=True)
        counts = weights > 0
        if not counts.any():
            raise ValueError("sample_weight is zero for every row: at least one must be positive")
        return counts, np.asarray(weights[counts])

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _check_enough(self, rows: int) -> None:
        """To split them at random."""
        if rows < _FEWEST:
            raise ValueError(
                f"{type(self).__name__} needs at least {_FEWEST} rows, got n_samples = {rows}"
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class LinearSoftmax(ClassifierMixin, OnNumbers):  # type: ignore[misc]
    """Predictions of a fitted softmax regression. Abstract: it has no `fit`."""

    def decision_function(self, X: Any) -> Array:
        """Log-odds: of the second class if there are two, else one column per class."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class, in the order of `classes_`."""
        return np.asarray(scipy.special.softmax(self._scores(X), axis=1))

    def predict(self, X: Any) -> Array:
        """The most probable class of each row."""
        best = self._scores(X).argmax(1)
        return np.asarray(self.classes_[best])

    def _scores(self, X: Any) -> Array:
        check_is_fitted(self)
        X = self._numbers(X, reset=False)
        scores = np.asarray(X @ self.coef_.T + self.intercept_)
        return np.column_stack([np.zeros_like(scores), scores]) if scores.shape[1] == 1 else scores

    def _checked(self, X: Any, y: Any) -> tuple[Any, Array]:
        """Features with a column of ones, and labels as numbers; sets `classes_`."""
        X, y = self._numbers(X, y)
        return add_bias(X), self._numbered(y)

    def _numbered(self, y: Array) -> Array:
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        self._check_classes()
        return np.searchsorted(self.classes_, y)

    def _check_classes(self) -> None:
        if len(self.classes_) < 2:
            raise ValueError(
                f"{type(self).__name__} needs at least 2 classes in y, got only one class: "
                f"{self.classes_.tolist()}"
            )

    def _options(self) -> dict[str, Any]:
        """The parameters under the names that the engines know them by."""
        options = self.get_params()
        del options["random_state"]
        return {**options, "classes": len(self.classes_), "seed": self._seed()}

    def _keep(self, W: Array, iterations: int) -> None:
        """(features, classes) as scikit-learn has them: of two classes, one row for the second."""
        W = W[:, 1:] - W[:, :1] if W.shape[1] == 2 else W
        self.coef_, self.intercept_ = np.ascontiguousarray(W[:-1].T), W[-1].copy()
        self.n_iter_ = iterations


class TakesTrusted:
    """An estimator whose `fit` is told which rows of X are trusted."""

    def _mask(self, trusted: Any, rows: int) -> Array:
        """A mask, from a mask or from the numbers of rows."""
        given = np.asarray(trusted)
        given = given.astype(int) if given.size == 0 else given  # of an empty list, too
        is_mask = given.ndim != 1 or (given.size == rows and np.isin(given, (0, 1)).all())
        if not is_mask:
            if given.dtype.kind not in "iu" or not np.isin(given, np.arange(-rows, rows)).all():
                raise ValueError(
                    f"trusted must be {rows} booleans or row numbers below {rows}, "
                    f"got {short(given)}"
                )
            given = np.isin(np.arange(rows), given % rows)
        mask = given.astype(bool)
        if mask.shape != (rows,):
            raise ValueError(f"trusted must be {rows} booleans, got shape {mask.shape}")
        if mask.all():
            raise ValueError(f"trusted marks {rows} of {rows} rows: leave at least one unmarked")
        return mask

    def _some(self, trusted: Any, rows: int) -> Array:
        """The same, with at least two rows: one is held back."""
        mask = self._mask(trusted, rows)
        if mask.sum() < 2:
            raise ValueError(f"trusted marks {mask.sum()} of {rows} rows: mark at least 2")
        return mask


class TakesTables(TakesTrusted):
    """An estimator with two methods, of which the experts take a DataFrame of any columns."""

    method: str
    verbose: int

    def _checked_method(self) -> str:
        if self.method not in (EXPERTS, HYPER_CLEANING):
            known = [EXPERTS, HYPER_CLEANING]
            raise ValueError(f"method must be one of {known}, got {quoted(self.method)}")
        return self.method

    def _tell(self, stage: str, done: int, total: int) -> None:
        if self.verbose:
            print(f"[{type(self).__name__}] {done} of {total}: {stage}")

    def _frame(self, X: Any, reset: bool) -> Any:
        """A DataFrame as it is, with texts and gaps; anything else as numbers."""
        import pandas as pd

        if isinstance(X, pd.DataFrame):
            validate_data(self, X, skip_check_array=True, reset=reset)
            return self._named(X.reset_index(drop=True), reset)
        X = validate_data(
            self,
            X,
            accept_sparse="csr",
            dtype=DTYPES,
            ensure_all_finite="allow-nan",
            reset=reset,
        )
        return self._named(pd.DataFrame(X.toarray() if scipy.sparse.issparse(X) else X), reset)

    def _named(self, frame: Any, reset: bool) -> Any:
        """With the columns of `fit`: scikit-learn lets an array follow a DataFrame."""
        if reset:
            self._columns = frame.columns
        return frame.set_axis(self._columns, axis=1)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.allow_nan = self.method == EXPERTS
        return tags
