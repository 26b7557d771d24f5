"""Logistic regression with one penalty per feature, as a scikit-learn estimator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from bilevel.apps.penalties import learn_penalties
from bilevel.sklearn.linear import LinearSoftmax


@dataclass(repr=False, eq=False)  # scikit-learn has its own
class PenalizedLogisticRegression(LinearSoftmax):
    """Softmax regression whose L2 penalties, one per feature, are learned on a validation split.

    min (1/n) Σ ℓ(w; a_i, b_i) + (1/cp) Σ_jk exp(λ_j) w_jk², with λ from the bilevel problem. Made
    for hundreds of thousands of sparse features, where no grid search could go.

    Args:
        validation: the fraction of the rows on which the penalties are learned; the final model
            is fitted on all rows.
        hold_back: the fraction of those that is kept aside, to stop before over-fitting.
        steps: the most outer steps.
        patience: stop after this many steps without gain on the held-out rows.
        outer_lr: how far λ may move in an outer step.
        random_state: a seed or a RandomState.

    Attributes:
        log_penalties_: λ_j of each feature; large means nearly switched off.
        classes_, coef_, intercept_: the model.

    Example:
        >>> from sklearn.datasets import load_digits
        >>> from bilevel.sklearn import PenalizedLogisticRegression
        >>> X, y = load_digits(return_X_y=True)
        >>> model = PenalizedLogisticRegression(random_state=0).fit(X[:1000] / 16, y[:1000])
        >>> model.log_penalties_.shape, bool(model.score(X[1000:] / 16, y[1000:]) > 0.9)
        ((64,), True)
    """

    validation: float = 0.5
    hold_back: float = 0.2
    steps: int = 30
    patience: int = 2
    outer_lr: float = 0.5
    random_state: Any = None

    def fit(self, X: Any, y: Any) -> Self:
        """Learn the penalties and the model."""
        rows, labels = self._checked(X, y)
        self._check_enough(len(labels))
        found = learn_penalties(rows, labels, **self._options())
        self._keep(found)
        self.log_penalties_ = found.log_penalties[:-1]
        return self
