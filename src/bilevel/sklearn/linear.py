"""What both estimators share: a linear softmax model, as scikit-learn expects it."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.special
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from bilevel.models.softmax.form import add_bias

Array = np.ndarray[Any, Any]


class LinearSoftmax(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Predictions of a fitted softmax regression. Abstract: it has no `fit`."""

    classes_: Array
    coef_: Array
    intercept_: Array

    def decision_function(self, X: Any) -> Array:
        """Log-odds: of the second class if there are two, else one column a class."""
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
        X = validate_data(self, X, accept_sparse="csr", dtype=_DTYPES, reset=False)
        return np.asarray(X @ self.coef_.T + self.intercept_)

    def _checked(self, X: Any, y: Any) -> tuple[Any, Array]:
        """Features with a column of ones, and labels as they came; sets `classes_`."""
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=_DTYPES)
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise ValueError(
                f"{type(self).__name__} needs at least 2 classes in y, got only one class: "
                f"{self.classes_.tolist()}"
            )
        return add_bias(X), y

    def _set_coefficients(self, W: Array) -> None:
        self.coef_, self.intercept_ = np.ascontiguousarray(W[:-1].T), W[-1].copy()

    def _seed(self, random_state: Any) -> int:
        return int(check_random_state(random_state).randint(2**31 - 1))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


_DTYPES = (np.float64, np.float32)
