"""What both estimators share: a linear softmax model, as scikit-learn expects it."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.special
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from bilevel.apps.cleaning import Cleaning
from bilevel.apps.penalties import Penalties
from bilevel.models.softmax.problem import add_bias

Array = np.ndarray[Any, Any]
_DTYPES = (np.float64, np.float32)
_FEWEST = 4  # rows, so that each part of a split has two


class LinearSoftmax(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Predictions of a fitted softmax regression. Abstract: it has no `fit`."""

    random_state: Any

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
        X = validate_data(self, X, accept_sparse="csr", dtype=_DTYPES, reset=False)
        return np.asarray(X @ self.coef_.T + self.intercept_)

    def _checked(self, X: Any, y: Any) -> tuple[Any, Array]:
        """Features with a column of ones, and labels as numbers; sets `classes_`."""
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=_DTYPES)
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise ValueError(
                f"{type(self).__name__} needs at least 2 classes in y, got only one class: "
                f"{self.classes_.tolist()}"
            )
        return add_bias(X), np.searchsorted(self.classes_, y)

    def _check_enough(self, rows: int) -> None:
        """To split them at random."""
        if rows < _FEWEST:
            raise ValueError(
                f"{type(self).__name__} needs at least {_FEWEST} rows (n_samples), got {rows}"
            )

    def _options(self) -> dict[str, Any]:
        """The parameters under the names that the engines know them by."""
        options = self.get_params()
        random = check_random_state(options.pop("random_state"))
        return {**options, "classes": len(self.classes_), "seed": int(random.randint(2**31 - 1))}

    def _keep(self, found: Cleaning | Penalties) -> None:
        W = found.coefficients
        self.coef_, self.intercept_ = np.ascontiguousarray(W[:-1].T), W[-1].copy()
        self.n_iter_ = len(found.held_back_loss)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
