"""Find wrong labels, as a scikit-learn estimator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_X_y

from bilevel.apps.cleaning.engine import clean
from bilevel.models.softmax.problem import add_bias
from bilevel.sklearn.linear import Array, LinearSoftmax


@dataclass(repr=False, eq=False)  # scikit-learn has its own
class HyperCleaner(LinearSoftmax):
    """A linear classifier for data with wrong labels, helped by a few trusted rows.

    It learns a weight σ(λ_i) for each row such that a softmax regression with these weights does
    well on the trusted rows, and refits without the rows whose labels are unlikely.

    Args:
        ridge: C_r, the strength of the penalty on the model's weights. Scale the features
            before (`StandardScaler` in a pipeline).
        algorithm: any name in `bilevel.algorithms.registry()`.
        steps: the most outer steps.
        patience: stop after this many steps without gain on the held-out trusted rows.
        hold_back: which fraction of the trusted rows is held back.
        untrusted_validation: if `fit` is given no trusted rows, this fraction of the rows takes
            their place, wrong labels and all: better than nothing, if few are wrong.
        random_state: a seed or a RandomState.

    Attributes:
        sample_weight_: σ(λ_i) of each row of X; 1 for trusted rows.
        label_quality_: the probability of each given label; low is suspicious.
        label_issues_: which rows are flagged as wrong.
        likely_label_: the label that the model would give.
        classes_, coef_, intercept_: the model.

    Example:
        >>> import numpy as np
        >>> from sklearn.datasets import load_digits
        >>> from bilevel.sklearn import HyperCleaner
        >>> X, y = load_digits(return_X_y=True)
        >>> X = X / 16
        >>> noisy = y.copy(); noisy[:300] = (y[:300] + 1) % 10
        >>> trusted = np.arange(len(y)) >= 1400
        >>> cleaner = HyperCleaner(random_state=0).fit(X, noisy, trusted=trusted)
        >>> bool(cleaner.label_issues_[:300].mean() > 0.9)
        True
        >>> bool(cleaner.label_issues_[300:].mean() < 0.1)
        True
    """

    ridge: float = 1e-3
    algorithm: str = "aid-bio"
    steps: int = 30
    patience: int = 2
    hold_back: float = 0.2
    untrusted_validation: float = 0.3
    random_state: Any = None

    def fit(
        self,
        X: Any,
        y: Any,
        X_trusted: Any = None,
        y_trusted: Any = None,
        *,
        trusted: Any = None,
    ) -> Self:
        """Clean the labels y of X.

        Args:
            X, y: rows and labels, some of them wrong.
            X_trusted, y_trusted: rows whose labels are right; or
            trusted: a mask of the rows of X whose labels are right.
        """
        rows, labels = self._checked(X, y)
        options = self._options()
        fraction, doubtful = options.pop("untrusted_validation"), np.ones(len(labels), dtype=bool)
        if X_trusted is None:
            doubtful = ~self._mask(trusted, len(labels), fraction, options["seed"])
            good = rows[~doubtful], labels[~doubtful]
        else:
            good = self._trusted(X_trusted, y_trusted, rows.dtype)
        found = clean(rows[doubtful], labels[doubtful], *good, **options)
        self._keep(found)
        self.sample_weight_ = np.ones(len(labels))
        self.sample_weight_[doubtful] = found.weights
        probabilities = self.predict_proba(X)
        self.label_quality_ = np.take_along_axis(probabilities, labels[:, None], 1)[:, 0]
        self.likely_label_ = self.classes_[probabilities.argmax(1)]
        self.label_issues_ = np.zeros(len(labels), dtype=bool)
        self.label_issues_[doubtful] = found.flagged
        return self

    def _trusted(self, X: Any, y: Any, dtype: Any) -> tuple[Any, Array]:
        X, y = check_X_y(X, y, accept_sparse="csr", dtype=dtype)
        if unknown := sorted(set(np.unique(y)) - set(self.classes_)):
            raise ValueError(f"y_trusted has labels that y does not have: {unknown}")
        return add_bias(X), np.searchsorted(self.classes_, y)

    def _mask(self, trusted: Any, rows: int, fraction: float, seed: int) -> Array:
        if trusted is not None:
            mask = np.asarray(trusted, dtype=bool)
            if mask.shape != (rows,):
                raise ValueError(f"trusted must be {rows} booleans, got shape {mask.shape}")
            if mask.sum() < 2 or mask.all():
                raise ValueError(
                    f"trusted marks {mask.sum()} of {rows} rows: at least 2 must be trusted, and "
                    "one not"
                )
            return mask
        self._check_enough(rows)
        mask = np.zeros(rows, dtype=bool)
        count = min(max(2, round(fraction * rows)), rows - 1)
        mask[np.random.default_rng(seed).permutation(rows)[:count]] = True
        return mask
