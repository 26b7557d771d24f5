"""Penalties by cross-validation: the fits on all folds inside, the penalties outside.

    min_θ  Σ_k Σ_{i in fold k} s_i ℓ(W_k'a_i, b_i) / Σ s_i  +  τ (ζ² + ‖δ‖²) / (2 Σ s_i),
    W_k = argmin Σ_{i not in fold k} s_i ℓ(W'a_i, b_i) + Σ_j exp(λ_j) ‖W_j‖²,
    λ_j = η + ζ log(v_j) + δ_j

θ = (η, ζ, δ): one level for all, how it follows the variance v_j of a feature, and what is
particular to a feature or a group, which τ draws towards zero: validation rows can be over-fitted
by as many penalties as there are features. Hypergradients are implicit, exact up to the solves.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from bilevel.apps.class_sums import ClassSums
from bilevel.apps.fold_fits import Fit, Rows
from bilevel.apps.holdout import Array
from bilevel.apps.penalty_search import Search, Space
from bilevel.models.softmax.losses import Loss

# Features and entries up to which sparse rows are written out: factorised fits are faster.
_NARROW, _DENSE = 400, 4_000_000
_LARGE = 5_000_000  # stored entries times classes; above it one half judges, the level alone is
# learned, and solves are rougher
_FEW = 1000  # rows; up to here ten folds: with five, the choice depends much on the draw
_FOLDS_FEW, _FOLDS, _FOLDS_LARGE = 10, 5, 2
_SMALL = 600  # coefficients; up to here accurate fits cost next to nothing
_ACCURACIES = 1e-10, 1e-4, 2e-3  # of the gradient at zero: small problems, others, large ones


@dataclass(frozen=True)
class CrossFitted:
    """What was learned.

    Args:
        log_penalties: λ_j of each feature.
        coefficients: (features + 1, columns) of the model refitted on all rows; the bias last.
        loss: cross-validated, at the penalties found.
        common_loss: the same for the best single penalty that was looked at.
        calls: how often all folds were fitted.
        folds: the fold of each row.
    """

    log_penalties: Array
    coefficients: Array
    loss: float
    common_loss: float
    calls: int
    folds: Array


def cross_fitted(
    features: Any,
    labels: Array,
    *,
    loss: Loss,
    columns: int,
    weights: Array | None = None,
    groups: Array | None = None,
    folds: int | None = None,
    shrinkage: float = 300.0,
    steps: int = 10,
    naive_bayes: bool = True,
    seed: int = 0,
    jobs: int = 1,
    tell: Callable[[str], None] = lambda text: None,
) -> CrossFitted:
    """Learn one penalty a feature, or a group of features, by cross-validation; then refit.

    With `naive_bayes`, the model is a sum of two linear ones: a softmax regression and, from the
    columns that are never negative (words, categories), naive Bayes by complements, whose
    scores are c columns more with a penalty of their own. On training rows these are scores of a
    naive Bayes that did not see the row.

    Args:
        features, labels: rows, dense or CSR, and classes 0, 1, ... or numbers.
        loss: `CrossEntropy()` of so many columns, or `Squared()` of one.
        columns: of the coefficients.
        weights: of the rows.
        groups: a number for each feature, the same within a group; one group a feature if None.
        folds: 5 if None, 10 for up to 1,000 rows, 2 for large problems; copies of a row are in one.
        shrinkage: τ.
        steps: the most outer steps.
        naive_bayes: whether it may help, where the labels are classes.
        seed: decides the folds.
        jobs: threads; each fits a fold at a time.
        tell: is told how it goes.

    Example:
        >>> import numpy as np
        >>> from bilevel.apps.cross_fitted import cross_fitted
        >>> from bilevel.models.softmax.losses import CrossEntropy
        >>> random = np.random.default_rng(0)
        >>> labels = np.arange(300) % 2
        >>> rows = random.normal(size=(300, 4)); rows[:, 0] += labels
        >>> found = cross_fitted(rows, labels, loss=CrossEntropy(), columns=2)
        >>> found.coefficients.shape, int(found.log_penalties.argmin())
        ((5, 2), 0)
    """
    weights = np.ones(len(labels)) if weights is None else weights
    sparse = scipy.sparse.issparse(features)
    if sparse and features.shape[1] <= _NARROW and np.prod(features.shape) <= _DENSE:
        features, sparse = features.toarray(), False
    rows = Rows(features, labels, weights)
    is_large = (features.nnz if sparse else features.size) * columns > _LARGE
    usual = _FOLDS_FEW if len(labels) <= _FEW else _FOLDS
    wanted = folds or (_FOLDS_LARGE if is_large else usual)
    of_row = folds_of(features, labels if columns > 1 else np.zeros(len(labels)), wanted, seed)
    size = (features.shape[1] + 1) * columns
    accuracy = _ACCURACIES[2 if is_large else int(size > _SMALL)]
    sums = ClassSums.of(features, labels, weights, columns, of_row) if naive_bayes else None
    parts = range(of_row.max() + 1)

    def split(k: int) -> tuple[Rows, Rows]:
        train, test = rows.take(of_row != k), rows.take(of_row == k)
        if sums is None:
            return train, test
        return train.beside(sums.scores_within({k})[of_row != k]), test.beside(
            sums.scores(test.features, {k})
        )

    asked = parts[:1] if is_large else parts
    fits = [Fit(*split(k), columns, loss, accuracy) for k in asked] if len(parts) > 1 else []
    space = Space.of(features, weights, groups, 0 if sums is None else columns)
    search = Search(space, fits, float(weights.sum()), shrinkage, jobs, tell)
    theta = search.run(0 if is_large else steps)
    penalties, whole = space.penalties(theta), rows
    if sums is not None:
        whole = rows.beside(sums.scores_within(set()))
    W = Fit(whole, whole.take(np.arange(1)), columns, loss, accuracy).coefficients(penalties)
    p = features.shape[1]
    if sums is not None:
        W = np.concatenate([W[:p] + sums.weights(set()) @ W[p:-1], W[-1:]])
    return CrossFitted(penalties[:p], W, search.best, search.common, search.calls, of_row)


def folds_of(features: Any, classes: Array, folds: int, seed: int) -> Array:
    """The fold of each row: classes are spread over all folds, copies of a row stay together.

    It depends on which different rows there are, not on their order or how often each comes.

    Example:
        >>> import numpy as np
        >>> folds_of(np.array([[1.0], [2.0], [1.0], [3.0]]), np.zeros(4), 2, seed=0)
        array([1, 0, 1, 0])
    """
    if scipy.sparse.issparse(features):
        ends = zip(features.indptr[:-1], features.indptr[1:], strict=True)
        content = (
            features.indices[a:b].astype(np.int64).tobytes() + features.data[a:b].tobytes()
            for a, b in ends
        )
    else:
        content = (row.tobytes() for row in np.ascontiguousarray(features))
    keys = np.array([zlib.crc32(text, seed & 0xFFFFFFFF) for text in content], dtype=np.int64)
    pairs = np.stack([np.asarray(classes, np.int64), keys], axis=1)
    different, which = np.unique(pairs, axis=0, return_inverse=True)
    return np.asarray((np.arange(len(different)) % folds)[which.reshape(-1)])
