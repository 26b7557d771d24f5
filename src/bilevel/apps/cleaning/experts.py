"""Experts: models of soft labels whose opinion of a row comes from a fit without that row's label.

An expert takes the share Q_ik of class k in the label of each row i, and gives a score of every
class for every row: leave-one-out for ridge regressions, out-of-bag for forests, out-of-fold for
softmax regression.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from scipy.special import log_softmax, softmax
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor

from bilevel.apps.cleaning.columns import Array
from bilevel.apps.cleaning.features import Features

_TREES, _BAG = 60, 20_000  # the trees of a forest, and the most rows that one is grown on
_LEAVES = 2500  # that a tree of many rows may have
_CANDIDATES, _FEW = 60, 10  # the most features that a split looks at: a random one, the best one
_LANDMARKS = 350
_MANY = 40_000  # rows that a linear model learns from
_WIDTHS = (0.25, 1.0)  # of the kernel, in units of the median squared distance
_INTERCEPT = 30.0  # its column: large, so that the penalty hardly shrinks it
FOLDS = 5


class Rows(NamedTuple):
    """What experts learn from.

    Args:
        features: of all rows, n of them.
        Q: (n, classes), the soft labels, or (n, 1), numbers; those of rows that are not in `rows`
            are not looked at.
        weight: of each row: how many copies of it there are.
        fold: to which of the folds each row belongs.
        rows: the numbers of those to learn from.
        seed, jobs: of what is random; processes for the forests.
    """

    features: Features
    Q: Array
    weight: Array
    fold: Array
    rows: Array
    seed: int
    jobs: int | None


class Opinion(NamedTuple):
    """Scores of all rows, each without its own label; and the model, for new rows."""

    scores: Array
    model: Softmax | Ridge | Forest


@dataclass(frozen=True)
class Softmax:
    """Softmax regression on the linear features; the last line of weights is the bias."""

    weights: Array

    def scores(self, features: Features) -> Array:
        return np.asarray(softmax(features.linear @ self.weights[:-1] + self.weights[-1], axis=1))


@dataclass(frozen=True)
class Ridge:
    """Ridge regression of the classes' shares, on linear features or on Nyström's of an RBF."""

    weights: Array
    mean: Array
    landmarks: Array  # none for linear features
    whiten: Array
    width: float

    def scores(self, features: Features) -> Array:
        starts = range(0, max(len(features.linear), 1), _MANY)
        parts = (features.of(slice(at, at + _MANY)) for at in starts)
        return np.concatenate([self.map(part) @ self.weights + self.mean for part in parts])

    def map(self, features: Features) -> Array:
        if not self.landmarks.size:
            return features.linear
        near = cdist(features.kernel, self.landmarks, "sqeuclidean")
        near /= -self.width  # in place: it is the largest array of all
        return np.asarray(np.exp(near, out=near) @ self.whiten)


@dataclass(frozen=True)
class Forest:
    """Regression trees of the classes' shares, or of numbers: all nodes in a line, each before
    those below.
    """

    feature: Array  # −1 at a leaf; else the next node is the left one
    threshold: Array
    right: Array
    value: Array  # (nodes, classes), or (nodes, 1) of the second of two classes
    roots: Array
    shares: bool = True

    def scores(self, features: Features) -> Array:
        rows = np.arange(len(features.tree))
        total = np.zeros((len(rows), self.value.shape[1]))
        for root in self.roots:
            node = np.full(len(rows), root)
            while (inner := self.feature[node] >= 0).any():
                at = node[inner]
                less = features.tree[rows[inner], self.feature[at]] <= self.threshold[at]
                node[inner] = np.where(less, at + 1, self.right[at])
            total += self.value[node]
        mean = total / len(self.roots)
        return both_classes(mean) if self.shares else mean

    @staticmethod
    def of(trees: list[Any], shares: bool = True) -> Forest:
        """The trees of a fitted forest, which numbers its nodes depth first."""
        roots = np.cumsum([0, *(tree.node_count for tree in trees[:-1])])
        right = [tree.children_right + root for tree, root in zip(trees, roots, strict=True)]
        feature = [np.where(t.children_left < 0, -1, t.feature) for t in trees]
        threshold = np.concatenate([tree.threshold for tree in trees])
        single = threshold.astype(np.float32)  # rounded down: features are single numbers, too
        single = np.where(single > threshold, np.nextafter(single, np.float32(-np.inf)), single)
        value = np.concatenate([tree.value[:, :, 0] for tree in trees]).astype(np.float16)
        nodes, after = (np.concatenate(part).astype(np.int32) for part in (feature, right))
        return Forest(nodes, single, after, value, roots, shares)


def _some(data: Rows) -> Rows:
    """As many rows as tell a linear model all: the others are judged by what it learned of these,
    and time and memory grow no more.
    """
    chosen = np.random.default_rng(data.seed).permutation(data.rows)[:_MANY]
    return data._replace(rows=np.sort(chosen)) if len(data.rows) > _MANY else data


def both_classes(scores: Array) -> Array:
    """Shares that sum to one, of all classes where only the second was predicted."""
    full = scores if scores.shape[1] > 1 else np.hstack([1 - scores, scores])
    full = np.clip(full, 0, 1) + 1e-9
    return np.asarray(full / full.sum(1, keepdims=True))


# Softmax regression


def _softmax_fit(X: Array, Q: Array, weight: Array, ridge: float, steps: int) -> Array:
    classes, size, total = Q.shape[1], X.shape[1], weight.sum()
    weighted = weight[:, None] * Q

    def loss(flat: Array) -> tuple[float, Array]:
        W = flat.reshape(size + 1, classes)
        logs = log_softmax(X @ W[:-1] + W[-1], axis=1)
        residual = (weight[:, None] * np.exp(logs) - weighted) / total
        value = -(weighted * logs).sum() / total + 0.5 * ridge * (W[:-1] ** 2).sum()
        return value, np.vstack([X.T @ residual + ridge * W[:-1], residual.sum(0)]).ravel()

    start = np.zeros((size + 1) * classes)
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": steps})
    return np.asarray(found.x.reshape(size + 1, classes))


def softmax_regression(data: Rows, ridge: float = 1e-3, steps: int = 40) -> Opinion:
    """Out of fold on its own rows."""
    data = _some(data)

    def fit(rows: Array) -> Softmax:
        X = data.features.linear[rows]
        return Softmax(_softmax_fit(X, data.Q[rows], data.weight[rows], ridge, steps))

    model = fit(data.rows)
    scores, fold = model.scores(data.features), data.fold[data.rows]
    for j in np.unique(fold):
        inside, out = data.rows[fold != j], data.rows[fold == j]
        if len(inside):
            scores[out] = fit(inside).scores(data.features.of(out))
    return Opinion(scores, model)


# Forests


def extra_trees(data: Rows) -> Opinion:
    """Trees with random splits."""
    return _forest(data, ExtraTreesRegressor, 0.4, 3 if len(data.rows) > 300 else 2)


def random_forest(data: Rows) -> Opinion:
    """Trees with the best splits, of few features each."""
    columns = max(1, data.features.tree.shape[1])
    share = min(1.0, 0.15 + 2 / columns, _FEW / columns)
    return _forest(data, RandomForestRegressor, share, 2)


def _forest(data: Rows, kind: Callable[..., Any], share: float, leaf: int) -> Opinion:
    rows, X = data.rows, data.features.tree
    Q = data.Q[rows, -1] if data.Q.shape[1] < 3 else data.Q[rows]
    shares = data.Q.shape[1] > 1

    def of_rows(found: Array) -> Array:
        table = np.nan_to_num(found).reshape(len(found), -1)
        return both_classes(table) if shares else table

    made = kind(
        n_estimators=_TREES,
        bootstrap=True,
        oob_score=True,
        max_features=max(1, int(min(share * X.shape[1], _CANDIDATES))),
        max_samples=min(1.0, _BAG / len(rows)),
        min_samples_leaf=max(leaf, min(len(rows), _BAG) // _LEAVES),
        random_state=data.seed,
        n_jobs=data.jobs,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of rows that are in every bag: they get equal shares
        made.fit(X[rows], Q, sample_weight=data.weight[rows])
    outside = np.setdiff1d(np.arange(len(X)), rows)
    scores = np.empty((len(X), data.Q.shape[1]))
    scores[rows] = of_rows(made.oob_prediction_)
    if len(outside):
        scores[outside] = of_rows(made.predict(X[outside]))
    return Opinion(scores, Forest.of([tree.tree_ for tree in made.estimators_], shares))


# Ridge regressions


def linear_ridge(data: Rows) -> Opinion:
    """On the linear features."""
    none = Ridge(np.zeros(0), np.zeros(0), np.zeros((0, 0)), np.zeros((0, 0)), 1.0)
    few = (0.3, 3.0, 30.0, 100.0) if len(data.rows) < len(data.Q) else (0.1, 1.0, 10.0, 100.0)
    return _ridge(data, iter([none]), few)


def kernel_ridge(data: Rows) -> Opinion:
    """On Nyström features of an RBF kernel."""
    return _ridge(data, _kernels(data), (0.03, 0.3, 3.0))


def _kernels(data: Rows) -> Iterator[Ridge]:
    # Landmarks from all rows: no label is needed for them.
    chosen = np.random.default_rng(data.seed).permutation(len(data.Q))[:_LANDMARKS]
    landmarks = data.features.kernel[chosen]
    distances = cdist(landmarks, landmarks, "sqeuclidean")
    median = np.median(distances[np.triu_indices(len(landmarks), 1)]) or 1.0
    for width in median * np.array(_WIDTHS):
        values, vectors = np.linalg.eigh(np.exp(-distances / width))
        keep = values > 1e-6 * values.max()
        whiten = vectors[:, keep] / np.sqrt(values[keep])
        yield Ridge(np.zeros(0), np.zeros(0), landmarks, whiten, float(width))


def _ridge(data: Rows, maps: Iterator[Ridge], penalties: tuple[float, ...]) -> Opinion:
    """The map and the penalty with the least leave-one-out error, r_i / (1 − h_i).

    The intercept is one more column: a mean that is taken off before has seen the row's own label,
    and where there are as many columns as rows, all others together tell it.
    """
    data = _some(data)
    Q, root = data.Q[data.rows], np.sqrt(data.weight[data.rows])[:, None]
    Y, least = root * Q, np.inf
    outside = np.setdiff1d(np.arange(len(data.Q)), data.rows)
    for candidate in maps:
        A = candidate.map(data.features.of(data.rows))
        A = np.hstack([A, np.full((len(A), 1), _INTERCEPT)])
        A *= root
        e, U = _spectrum(A)
        AU = A @ U
        del A
        for penalty in penalties:
            inverse = 1 / (np.maximum(e, 0) + penalty)
            beta = inverse[:, None] * (AU.T @ Y)
            leverage = np.einsum("ij,ij,j->i", AU, AU, inverse)
            left_out = (Y - AU @ beta) / np.maximum(1 - leverage, 1e-9)[:, None]
            if (error := float((left_out**2).sum())) < least:
                least, weights = error, U @ beta
                model = replace(candidate, weights=weights[:-1], mean=_INTERCEPT * weights[-1])
                scores = np.empty((len(data.Q), Q.shape[1]))
                scores[data.rows] = Q - left_out / root
    scores[outside] = model.scores(data.features.of(outside))
    return Opinion(scores, model)


def _spectrum(A: Array) -> tuple[Array, Array]:
    """The eigenvalues of A'A and their vectors, by the smaller of A'A and AA'."""
    if len(A) >= A.shape[1]:
        return np.linalg.eigh(A.T @ A)
    e, V = np.linalg.eigh(A @ A.T)
    keep = e > 1e-8 * max(e.max(), 1e-300)
    return e[keep], A.T @ (V[:, keep] / np.sqrt(e[keep]))


ALL = (softmax_regression, extra_trees, random_forest, kernel_ridge, linear_ridge)
