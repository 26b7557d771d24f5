"""The two rounds: experts on the labels as given, then on what the first pool believes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from bilevel.apps.cleaning.annotators import abilities, agreed, log_likelihood
from bilevel.apps.cleaning.columns import Array
from bilevel.apps.cleaning.counting import ENOUGH, FEW
from bilevel.apps.cleaning.experts import (
    FOLDS,
    Opinion,
    Rows,
    extra_trees,
    kernel_ridge,
    linear_ridge,
    random_forest,
    softmax_regression,
)
from bilevel.apps.cleaning.features import Features
from bilevel.apps.cleaning.pool import TEMPERATURE, Evidence, Terms, Verdict, fit_pool

EXPERTS = (softmax_regression, extra_trees, random_forest, kernel_ridge, linear_ridge)
_TRUSTED_EXPERTS = (extra_trees, kernel_ridge, linear_ridge)
_KEPT, _KNOWN = 0.75, 0.005  # of what experts know about the labels, and of the labels' entropy

Progress = Callable[[str, int, int], None]


class Stages:
    """Tells the progress, one more at each call."""

    def __init__(self, tell: Progress, total: int) -> None:
        self._tell, self._total, self._done = tell, total, 0

    def __call__(self, stage: str) -> None:
        self._tell(stage, self._done, self._total)
        self._done += 1


class Judged(NamedTuple):
    """What came of the two rounds.

    Args:
        verdict: the last.
        opinions: all experts that it weighs.
        blind: whether the first pool was.
        guesses: the first pool's, of all rows.
        doubts: the first pool's P(wrong) of all rows, trusted ones treated as doubtful.
        plain: of doubtful rows, the probabilities by the mean of the first experts' logs.
    """

    verdict: Verdict
    opinions: list[Opinion]
    blind: bool
    guesses: Array
    doubts: Array
    plain: Array


class Judge:
    """The two rounds, on distinct rows."""

    def __init__(
        self,
        features: Features,
        codes: Array,
        trusted: Array,
        copy_of: Array,
        copies: Array,
        classes: int,
        seed: int,
        jobs: int | None,
        stages: Stages,
        votes: Array | None = None,
    ) -> None:
        self._features, self._codes, self._trusted = features, codes, trusted
        self._copy_of, self._copies, self._classes = copy_of, copies, classes
        self._seed, self._jobs, self._stages = seed, jobs, stages
        self._given, self._right = codes[~trusted], codes[trusted]
        self._votes = votes
        self._fold = _folds(self._shared(np.eye(classes)[codes]).argmax(1), seed)

    def _shared(self, Q: Array, which: Array | slice = slice(None)) -> Array:
        """The mean label of the copies of each row."""
        total = np.zeros((len(self._copies), self._classes))
        np.add.at(total, self._copy_of[which], Q[which])
        return np.asarray(total / np.maximum(total.sum(1, keepdims=True), 1e-9))

    def _rows(self, Q: Array, rows: Array, weight: Array) -> Rows:
        return Rows(self._features, Q, weight, self._fold, rows, self._seed, self._jobs)

    def rounds(self) -> Judged:
        """Both rounds.

        Whatever is said about trusted rows must come from the first round: in the second, a row's
        label has shaped its neighbours' soft labels.
        """
        soft = np.eye(self._classes)[self._codes]
        if self._votes is not None:
            soft[~self._trusted] = agreed(self._votes, self._classes)[~self._trusted]
        opinions = self._by_trusted_rows() if self._trusted.sum() >= ENOUGH else []
        first = self._round(soft, "first")
        how = self._by_votes(soft)
        verdict = self._pool([*opinions, *first], Terms(hard_rows=False, **how))
        alone = len(self._right) < FEW and self._votes is None
        lost = alone and self._is_blind(first, verdict)
        blind = lost and len(self._right) < ENOUGH
        if lost:
            how = {"entropy": 0.0, "bias": 8.0, "rates": self._confident_rates(first)}
            verdict = self._pool([*opinions, *first], Terms(hard_rows=False, **how))
        logs = self._logs([*opinions, *first])[:, self._copy_of]
        guesses, beliefs = verdict.pool.probabilities(logs).argmax(1), soft.copy()
        beliefs[self._trusted] = verdict.if_doubtful
        soft[~self._trusted] = beliefs[~self._trusted] = verdict.posterior
        doubts = 1 - beliefs[np.arange(len(beliefs)), self._codes]
        opinions += [*first, *self._round(soft, "second")]
        how |= self._by_votes(soft)
        self._stages("weighing the evidence")
        plain = np.asarray(softmax(TEMPERATURE * self._mean(first), axis=1))
        last = self._pool(opinions, Terms(**how))
        return Judged(last, opinions, blind, guesses, doubts, plain)

    def _by_votes(self, soft: Array) -> dict[str, Any]:
        """What a pool is told about annotators: with several, noise is known without entropy."""
        if self._votes is None:
            return {}
        likelihood = log_likelihood(self._votes, abilities(self._votes, soft))
        return {"entropy": 0.0, "votes": likelihood[~self._trusted]}

    def _round(self, soft: Array, name: str) -> list[Opinion]:
        everything = np.arange(len(self._copies))
        data = self._rows(self._shared(soft), everything, self._copies)
        found = []
        for expert in EXPERTS:
            self._stages(f"{name} look: {expert.__name__.replace('_', ' ')}")
            found.append(expert(data))
        return found

    def _by_trusted_rows(self) -> list[Opinion]:
        """Experts that saw nothing but trusted rows."""
        weight = np.bincount(self._copy_of[self._trusted], minlength=len(self._copies)).astype(
            float
        )
        known = self._shared(np.eye(self._classes)[self._codes], self._trusted)
        return [
            expert(self._rows(known, np.flatnonzero(weight), weight)) for expert in _TRUSTED_EXPERTS
        ]

    def _logs(self, opinions: list[Opinion]) -> Array:
        small = floor(self._classes)
        return np.stack([logs_of(opinion.scores, small) for opinion in opinions])

    def _pool(self, opinions: list[Opinion], terms: Terms) -> Verdict:
        logs, of = self._logs(opinions), self._copy_of
        doubtful, trusted = (logs[:, of[mask]] for mask in (~self._trusted, self._trusted))
        return fit_pool(Evidence(doubtful, self._given, trusted, self._right), terms, self._seed)

    def _mean(self, opinions: list[Opinion]) -> Array:
        return np.asarray(self._logs(opinions).mean(0, dtype=float)[self._copy_of[~self._trusted]])

    def _is_blind(self, opinions: list[Opinion], verdict: Verdict) -> bool:
        """Whether the pool has lost what the experts know about the labels, or they had none."""
        told, entropy = information(self._mean(opinions), self._given)
        return entropy + verdict.likelihood < _KEPT * told or told < _KNOWN * entropy

    def _confident_rates(self, opinions: list[Opinion]) -> Array:
        return confident_rates(softmax(self._mean(opinions), axis=1), self._given)


def floor(classes: int) -> float:
    """The least probability that an expert may give to a class."""
    return min(0.01, 0.25 / classes)


def logs_of(scores: Array, small: float) -> Array:
    return np.asarray(np.log(np.clip(scores, small, 1 - small)), np.float32)


def _folds(codes: Array, seed: int) -> Array:
    """Each row's fold, the classes spread evenly."""
    fold, random = np.empty(len(codes), int), np.random.default_rng(seed)
    for k in np.unique(codes):
        rows = random.permutation(np.flatnonzero(codes == k))
        fold[rows] = (np.arange(len(rows)) + k) % FOLDS
    return fold


def information(mean: Array, given: Array) -> tuple[float, float]:
    """Nats a row that the mean of experts' logs tells about the labels; the labels' entropy."""
    rows, classes = mean.shape
    is_label = np.eye(classes)[given]

    def loss(v: Array) -> tuple[float, Array]:
        logs = log_softmax(v[0] * mean + v[1:], axis=1)
        residual = (np.exp(logs) - is_label) / rows
        value = -logs[np.arange(rows), given].mean() + 1e-3 * (v[1:] ** 2).sum()
        return value, np.r_[(residual * mean).sum(), residual.sum(0) + 2e-3 * v[1:]]

    left = minimize(loss, np.r_[1.0, np.zeros(classes)], jac=True, method="L-BFGS-B").fun
    shares = np.bincount(given) / rows
    shares = shares[shares > 0]
    entropy = -(shares * np.log(shares)).sum()
    return max(entropy - left, 0.0), float(entropy)


def confident_rates(probabilities: Array, given: Array) -> Array:
    """Error rate of each class: the share of other labels among the rows that are surely in it.

    Surely: with more probability than the rows that are labelled so have on average.
    """
    classes = probabilities.shape[1]
    usual = [
        probabilities[given == k, k].mean() if (given == k).any() else 1.0 for k in range(classes)
    ]
    sure = probabilities >= np.array(usual)
    best = np.where(sure, probabilities - usual, -np.inf).argmax(1)
    inside = [given[sure.any(1) & (best == k)] for k in range(classes)]
    rates = [((z != k).sum() + 1) / (len(z) + 2) if len(z) else 0.3 for k, z in enumerate(inside)]
    return np.clip(rates, 0.01, 0.48 if classes == 2 else 0.7)
