"""Find wrong labels, as a scikit-learn estimator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.utils import (
    assert_all_finite,
    check_consistent_length,
    check_random_state,
    column_or_1d,
)
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, check_X_y

from bilevel.apps.cleaning.hyper_cleaning import clean
from bilevel.models.softmax.problem import add_bias
from bilevel.sklearn.linear import EXPERTS, HYPER_CLEANING, Array, LinearSoftmax, TakesTables


@dataclass(repr=False, eq=False)  # scikit-learn has its own
class HyperCleaner(TakesTables, LinearSoftmax):
    """A classifier for data with wrong labels, which tells which of them are wrong.

    Two methods. "experts", the better one for tables: several models learn the labels, each row is
    judged by models that did not see its label, and a model of the noise weighs them. X may be a
    DataFrame with categories, dates, free text and gaps. "hyper-cleaning", the paper's: a weight
    σ(λ_i) for each row, learned such that a softmax regression with these weights does well on the
    trusted rows; a linear model, for numbers that are scaled before.

    Args:
        method: "experts" or "hyper-cleaning".
        ridge, algorithm, steps, patience, hold_back: of hyper-cleaning: C_r, a name in
            `bilevel.algorithms.registry()`, the most outer steps, how many without gain end it, and
            which fraction of the trusted rows is held back.
        untrusted_validation: of hyper-cleaning: if `fit` is given no trusted rows, this fraction of
            the rows takes their place, wrong labels and all.
        random_state: a seed or a RandomState.
        n_jobs: processors for the experts.
        verbose: above 0, the experts say what they do.

    Attributes:
        sample_weight_: σ(λ_i) of each row, or the probability that its label is right; 1 for
            trusted rows.
        label_quality_: the probability of each given label; low is suspicious.
        label_issues_: which rows are flagged as wrong.
        likely_label_: the label that the model would give.
        findings_: of experts: all that was found, as `bilevel.cleaning.find_wrong_labels` gives it.
        classes_: in order; coef_, intercept_: the model of hyper-cleaning.

    Example:
        >>> import numpy as np
        >>> from sklearn.datasets import load_iris
        >>> from bilevel.sklearn import HyperCleaner
        >>> X, y = load_iris(return_X_y=True)
        >>> noisy = y.copy(); noisy[::10] = (y[::10] + 1) % 3
        >>> cleaner = HyperCleaner(random_state=0).fit(X, noisy)
        >>> bool(cleaner.label_issues_[::10].mean() > 0.9), bool(cleaner.label_issues_.mean() < 0.2)
        (True, True)
    """

    method: str = EXPERTS
    ridge: float = 1e-3
    algorithm: str = "aid-bio"
    steps: int = 30
    patience: int = 2
    hold_back: float = 0.2
    untrusted_validation: float = 0.3
    random_state: Any = None
    n_jobs: int | None = None
    verbose: int = 0

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
            X_trusted, y_trusted: rows whose labels are right. In a pipeline they are not
                transformed: mark rows of X instead; or
            trusted: the rows of X whose labels are right, as a mask or by their numbers.
        """
        methods = {EXPERTS: self._fit_experts, HYPER_CLEANING: self._fit_hyper_cleaning}
        if (X_trusted is None) != (y_trusted is None):
            given, lacking = ("X", "y") if y_trusted is None else ("y", "X")
            raise ValueError(f"{given}_trusted needs {lacking}_trusted: give both or neither")
        methods[self._checked_method()](X, y, X_trusted, y_trusted, trusted)
        return self

    def _fit_experts(self, X: Any, y: Any, X_trusted: Any, y_trusted: Any, trusted: Any) -> None:
        import pandas as pd

        from bilevel.apps.cleaning.engine import find_wrong_labels

        frame, labels = self._frame(X, reset=True), column_or_1d(y, warn=True)
        if len(frame) != len(labels):
            raise ValueError(f"X has {len(frame)} rows and y {len(labels)} labels")
        self._learn_classes(labels)
        self._check_enough(len(labels))
        rows = len(labels)
        mask = np.zeros(rows, bool) if trusted is None else self._mask(trusted, rows)
        if X_trusted is not None:
            check_consistent_length(X_trusted, y_trusted)
            self._check_known(y_trusted)
            more = self._frame(X_trusted, reset=False)
            frame = pd.concat([frame, more], ignore_index=True)
            labels = np.concatenate([labels, column_or_1d(y_trusted)])
            mask = np.concatenate([mask, np.ones(len(more), bool)])
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        found = find_wrong_labels(
            frame, labels, trusted=mask, seed=seed, jobs=self.n_jobs, progress=self._tell
        )
        self.findings_ = found
        self.n_iter_ = 2
        self.label_quality_ = self.sample_weight_ = 1 - found.wrong[:rows]
        self.label_issues_, self.likely_label_ = found.flagged[:rows], found.likely[:rows]

    def _scores(self, X: Any) -> Array:
        check_is_fitted(self, "classes_")
        if self.method == HYPER_CLEANING:
            return super()._scores(X)
        return np.log(self.findings_.model.probabilities(self._frame(X, reset=False)))

    def _fit_hyper_cleaning(
        self, X: Any, y: Any, X_trusted: Any, y_trusted: Any, trusted: Any
    ) -> None:
        rows, labels = self._checked(X, y)
        options = self._options()
        for name in ("method", "n_jobs", "verbose"):
            del options[name]
        fraction, doubtful = options.pop("untrusted_validation"), np.ones(len(labels), dtype=bool)
        if X_trusted is None:
            doubtful = ~self._outer(trusted, len(labels), fraction, options["seed"])
            good = rows[~doubtful], labels[~doubtful]
        else:
            good = self._trusted(X_trusted, y_trusted, rows.dtype)
        found = clean(rows[doubtful], labels[doubtful], *good, **options)
        self._keep(found.coefficients, len(found.held_back_loss))
        self.sample_weight_ = np.ones(len(labels))
        self.sample_weight_[doubtful] = found.weights
        probabilities = self.predict_proba(X)
        self.label_quality_ = np.take_along_axis(probabilities, labels[:, None], 1)[:, 0]
        self.likely_label_ = self.classes_[probabilities.argmax(1)]
        self.label_issues_ = np.zeros(len(labels), dtype=bool)
        self.label_issues_[doubtful] = found.flagged

    def _trusted(self, X: Any, y: Any, dtype: Any) -> tuple[Any, Array]:
        X, y = check_X_y(X, y, accept_sparse="csr", dtype=dtype)
        self._check_known(y)
        return add_bias(X), np.searchsorted(self.classes_, y)

    def _check_known(self, y: Any) -> None:
        if unknown := sorted(set(np.unique(y)) - set(self.classes_)):
            known = np.asarray(unknown).tolist()
            raise ValueError(f"y_trusted has labels that y does not have: {known}")

    def _learn_classes(self, y: Array) -> None:
        assert_all_finite(y, input_name="y")
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        self._check_classes()

    def _outer(self, trusted: Any, rows: int, fraction: float, seed: int) -> Array:
        """The rows of the outer loss: trusted ones, or a fraction at random."""
        if trusted is not None:
            return self._some(trusted, rows)
        self._check_enough(rows)
        mask = np.zeros(rows, dtype=bool)
        count = min(max(2, round(fraction * rows)), rows - 1)
        mask[np.random.default_rng(seed).permutation(rows)[:count]] = True
        return mask
