"""Naive Bayes by complements, out of sums of features by class and fold.

    w_jk = −log((Σ_{i: b_i ≠ k} s_i a_ij + α) / Σ_j' (...)),  less its mean over classes k

Reference: Rennie, Shih, Teevan & Karger, "Tackling the poor assumptions of naive Bayes text
classifiers", ICML 2003.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse

from bilevel.apps.holdout import Array
from bilevel.apps.linear_fits import Rows


@dataclass(frozen=True)
class ClassSums:
    """What naive Bayes has to know of rows: that of any folds is a difference of these sums.

    Args:
        features: the rows.
        folds: of each row.
        sums: (folds, features, classes), of the columns without negative entries.
        counts: which columns those are.
        smoothing: α, the mean of their entries that are not zero.
        scale: of the scores.
    """

    features: Any
    folds: Array
    sums: Array
    counts: Array
    smoothing: float
    scale: float = 1.0

    @staticmethod
    def of(rows: Rows, classes: int, folds: Array) -> ClassSums | None:
        """None if there is no column without negative entries, or but one fold."""
        features, labels, weights = rows.features, rows.labels, rows.weights
        if folds.max() == folds.min():
            return None
        sparse = scipy.sparse.issparse(features)
        least = features.min(0).toarray().reshape(-1) if sparse else features.min(0)
        most = features.max(0).toarray().reshape(-1) if sparse else features.max(0)
        counts = (least >= 0) & (most > least)
        if not counts.any():
            return None
        of_class = np.zeros((len(labels), classes), features.dtype)
        of_class[np.arange(len(labels)), labels] = weights
        parts = [folds == k for k in range(folds.max() + 1)]
        sums = np.stack([np.asarray(features[part].T @ of_class[part]) for part in parts])
        sums *= counts[:, None]
        entries = np.asarray((features[:, counts] > 0).sum(1)).reshape(-1)
        raw = ClassSums(features, folds, sums, counts, float(sums.sum() / (weights @ entries)))
        squares = np.square(raw.scores_within(set())).mean(1)
        spread = float(np.sqrt(np.average(squares, weights=weights)))
        return replace(raw, scale=1 / spread if spread > 0 else 1.0)

    def weights(self, without: set[int]) -> Array:
        """w, of all folds but these."""
        kept = [k for k in range(len(self.sums)) if k not in without]
        own = self.sums[kept].sum(0)
        other = own.sum(1, keepdims=True) - own + self.smoothing * self.counts[:, None]
        logs = np.log(np.where(self.counts[:, None], other / other.sum(0), 1))
        found = (logs.mean(1, keepdims=True) - logs) * self.scale
        outputs = found[:, 1:] if found.shape[1] == 2 else found  # of two they are opposite
        return np.asarray(outputs, dtype=self.features.dtype)

    def scores(self, features: Any, without: set[int]) -> Array:
        return np.asarray(features @ self.weights(without))

    def scores_within(self, without: set[int]) -> Array:
        """The score of each row by a naive Bayes that knows neither its fold nor those."""
        found = np.zeros((len(self.folds), self.outputs), self.features.dtype)
        for k in range(len(self.sums)):
            found[self.folds == k] = self.scores(self.features[self.folds == k], {*without, k})
        return found

    @property
    def outputs(self) -> int:
        return 1 if self.sums.shape[2] == 2 else int(self.sums.shape[2])
