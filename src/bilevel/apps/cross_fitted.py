"""One penalty a feature: the level by cross-validation, what is particular by its evidence.

    W(η, δ) = argmin Σ_i s_i ℓ(W a_i, b_i) + ½ Σ_j exp(η + δ_j) ‖W_j‖²

First δ = 0, and η has the least cross-validated loss. Then the coefficients of a feature are seen
as draws of one normal distribution, whose precision has the largest evidence (Laplace's, with
the diagonal h of the Hessian) where it is Σ_k γ_jk / ‖W_j‖², γ = h / (h + exp(η)). As one feature
says little, it is drawn to the level by τ coefficients of the usual size for each of its own:

    exp(δ_j) = (Σ_k γ_jk + τc) / (m exp(η) ‖W_j‖² + τc),   m = Σ_jk γ_jk / Σ_j exp(η) ‖W_j‖²

No row is used to choose many numbers that it also judges, as it would be if hypergradients of the
cross-validated loss chose δ.

Reference: MacKay, "Bayesian interpolation", Neural Computation 1992.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
from sklearn.exceptions import ConvergenceWarning

from bilevel.apps.class_sums import ClassSums
from bilevel.apps.holdout import Array
from bilevel.apps.linear_fits import Rows
from bilevel.apps.penalty_search import Search, Task

# Features and entries up to which sparse rows are written out: factorised fits are faster.
_NARROW, _DENSE = 400, 1_000_000
_LARGE = 5_000_000  # stored entries times classes: the level alone is learned, on two folds
_FOLDS = 5
_CHEAP, _FEWER = 1e5, 3  # entries times classes; above it so many folds are judged


@dataclass(frozen=True)
class CrossFitted:
    """What was learned.

    Args:
        log_penalties: η + δ_j of each feature.
        coefficients: (outputs, features), refitted on all rows; of two classes one output.
        intercept: of each output.
        loss: cross-validated, the mean over the rows.
        calls: how often all folds were fitted.
    """

    log_penalties: Array
    coefficients: Array
    intercept: Array
    loss: float
    calls: int


def cross_fitted(
    features: Any,
    labels: Array,
    *,
    classes: int | None,
    weights: Array | None = None,
    groups: Array | None = None,
    folds: int = _FOLDS,
    shrinkage: float = 3.0,
    naive_bayes: bool = True,
    seed: int = 0,
    jobs: int = 1,
    tell: Callable[[str], None] = lambda text: None,
) -> CrossFitted:
    """Learn one penalty a feature, or a group of features, and fit all rows.

    With `naive_bayes`, the model may be a sum of two linear ones: a softmax regression and, from
    the columns that are never negative (words, categories), naive Bayes by complements, whose
    scores are more columns. On training rows these are scores of a naive Bayes that did not
    see the row. It is taken if it lowers the cross-validated loss by more than a standard error; on
    large data always, for want of time.

    Args:
        features, labels: rows, dense or CSR, and classes 0, 1, ... or numbers.
        classes: how many, None for numbers.
        weights: of the rows.
        groups: a number for each feature, the same within a group; one group a feature if None.
        folds: of the cross-validation; copies of a row are in one.
        shrinkage: τ; infinite for one penalty for all.
        naive_bayes: whether it may help, where the labels are classes.
        seed: decides the folds.
        jobs: threads; each fits a fold at a time.
        tell: is told how it goes.

    Example:
        >>> import numpy as np
        >>> from bilevel.apps.cross_fitted import cross_fitted
        >>> random = np.random.default_rng(0)
        >>> labels = np.arange(300) % 2
        >>> rows = random.normal(size=(300, 4)); rows[:, 0] += labels
        >>> found = cross_fitted(rows, labels, classes=2)
        >>> found.coefficients.shape, int(found.log_penalties.argmin())
        ((1, 4), 0)
    """
    weights = np.ones(len(labels)) if weights is None else weights
    sparse = scipy.sparse.issparse(features)
    if sparse and features.shape[1] <= _NARROW and np.prod(features.shape) <= _DENSE:
        features, sparse = features.toarray(), False
    rows = Rows(features, labels, weights)
    is_large = (features.nnz if sparse else features.size) * (classes or 1) > _LARGE
    of_row = folds_of(features, labels if classes else np.zeros(len(labels)), folds, seed)
    sums = ClassSums.of(rows, classes, of_row) if classes and naive_bayes else None
    p = features.shape[1]
    groups = np.arange(p) if groups is None else np.unique(groups, return_inverse=True)[1]
    is_costly = bool(classes) and np.prod(features.shape) * (classes or 1) > _CHEAP
    judged = 1 if is_large else min(folds, _FEWER) if is_costly else folds
    task = Task(rows, classes, of_row, folds, judged, groups, shrinkage, is_large, jobs, tell)
    with warnings.catch_warnings():  # a fit that ends early is judged as it is
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", scipy.linalg.LinAlgWarning)
        search = Search(task, sums)
        search.find_level()
        if sums is not None and not is_large:
            plain = Search(task, None)
            plain.find_level(search.level)  # a lighter one, where naive Bayes says the most
            search = search if search.is_better_than(plain) else plain
        search.find_what_is_particular()
        penalties, W, intercept = search.fit_all()
    return CrossFitted(penalties, W, intercept, search.loss, search.calls)


def folds_of(features: Any, classes: Array, folds: int, seed: int) -> Array:
    """The fold of each row: classes are spread over all folds, copies of a row stay together.

    It depends on which different rows there are, not on their order or how often each comes. A
    class of a single row is in none, which is told by the number after the last.

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
    _, of_class, sizes = np.unique(different[:, 0], return_inverse=True, return_counts=True)
    found = np.where(sizes[of_class] > 1, np.arange(len(different)) % folds, folds)
    return np.asarray(found[which.reshape(-1)])
