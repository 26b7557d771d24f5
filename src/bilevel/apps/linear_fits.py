"""Linear models of scikit-learn's on some rows, with a penalty for each feature.

min Σ_i s_i ℓ(W a_i, b_i) + ½ Σ_j exp(η + δ_j) ‖W_j‖², the intercept free
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from scipy.special import logsumexp, softmax
from sklearn.linear_model import LogisticRegression, Ridge

from bilevel.apps.holdout import Array

_NEWTON = 4e6  # rows times coefficients squared; up to here Newton's exact fits are faster
_EXACT, _USUAL = 1e-10, 1e-4  # the largest entry of the gradient, of the mean loss


@dataclass(frozen=True)
class Rows:
    """Features, labels (classes or numbers) and weights."""

    features: Any
    labels: Array
    weights: Array

    def take(self, which: Array) -> Rows:
        return Rows(self.features[which], self.labels[which], self.weights[which])

    def columns(self, which: Array) -> Rows:
        return Rows(self.features[:, which], self.labels, self.weights)

    def beside(self, more: Array) -> Rows:
        """With more columns."""
        if scipy.sparse.issparse(self.features):
            both = scipy.sparse.hstack([self.features, scipy.sparse.csr_array(more)], format="csr")
        else:
            both = np.concatenate([self.features, more], axis=1)
        return Rows(both, self.labels, self.weights)


class Fit(ABC):
    """The model on these rows; each solution starts from the last one."""

    def __init__(self, rows: Rows, outputs: int) -> None:
        self.rows, self.outputs = rows, outputs
        self.coefficients = np.zeros((outputs, rows.features.shape[1]))
        self.intercept = np.zeros(outputs)

    def solve(self, level: float, own: Array | float = 0.0) -> None:
        """At η and δ."""
        features = self.rows.features
        scale = np.exp(-np.asarray(own, dtype=features.dtype) / 2)
        if scale.ndim and scipy.sparse.issparse(features):
            features = features @ scipy.sparse.diags_array(scale)
        elif scale.ndim:
            features = features * scale
        self._fit(features, self.coefficients / scale, float(np.exp(level)))
        self.coefficients = np.atleast_2d(self.model.coef_ * scale)
        self.intercept = np.atleast_1d(self.model.intercept_)

    def scores(self, features: Any) -> Array:
        return np.asarray(features @ self.coefficients.T + self.intercept)

    @property
    def curvature(self) -> Array:
        """Σ_i s_i a_ij² ∂²ℓ/∂z_k², of each feature and output."""
        A = self.rows.features
        squares = A.power(2) if scipy.sparse.issparse(A) else np.square(A)
        bend = self.bend(self.scores(A)) * self.rows.weights[:, None]
        return np.asarray(squares.T @ bend.astype(A.dtype), dtype=float)

    model: Any

    @abstractmethod
    def _fit(self, features: Any, start: Array, penalty: float) -> None:
        """One for all features."""

    @abstractmethod
    def losses(self, rows: Rows) -> Array:
        """Of each row."""

    @abstractmethod
    def bend(self, scores: Array) -> Array:
        """∂²ℓ/∂z_k²."""


class ClassFit(Fit):
    """Of classes 0, 1, ...; of two there is one output, the log-odds."""

    def __init__(self, rows: Rows, classes: int, steps: int = 100) -> None:
        super().__init__(rows, 1 if classes == 2 else classes)
        cost = len(rows.labels) * float(self.coefficients.size) ** 2
        exact = cost <= _NEWTON and not scipy.sparse.issparse(rows.features)
        self.model = LogisticRegression(
            solver="newton-cholesky" if exact else "lbfgs",
            tol=_EXACT if exact else _USUAL,
            max_iter=steps,
            warm_start=True,
        )

    def _fit(self, features: Any, start: Array, penalty: float) -> None:
        self.model.coef_, self.model.intercept_ = start, self.intercept
        self.model.set_params(C=1 / penalty)
        self.model.fit(features, self.rows.labels, self.rows.weights)

    def losses(self, rows: Rows) -> Array:
        scores = self.both(self.scores(rows.features))
        given = np.take_along_axis(scores, rows.labels[:, None], 1)[:, 0]
        return np.asarray(logsumexp(scores, axis=1) - given)

    def bend(self, scores: Array) -> Array:
        P = softmax(self.both(scores), axis=1)[:, -self.outputs :]
        return np.asarray(P * (1 - P))

    @staticmethod
    def both(scores: Array) -> Array:
        return np.column_stack([0 * scores, scores]) if scores.shape[1] == 1 else scores


class NumberFit(Fit):
    """Of numbers, by least squares."""

    def __init__(self, rows: Rows, outputs: int = 1) -> None:
        super().__init__(rows, outputs)
        self.model = Ridge(tol=_EXACT)

    def _fit(self, features: Any, start: Array, penalty: float) -> None:
        self.model.set_params(alpha=penalty)
        self.model.fit(features, self.rows.labels, self.rows.weights)

    def losses(self, rows: Rows) -> Array:
        wrong = self.scores(rows.features)[:, 0] - rows.labels
        return np.asarray(wrong**2 / 2)

    def bend(self, scores: Array) -> Array:
        return np.ones_like(scores)
