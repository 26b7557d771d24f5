"""The two rounds: experts on the labels as given, then on what the first pool believes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax

from bilevel.apps.cleaning import experts
from bilevel.apps.cleaning.annotators import abilities, agreed, log_likelihood
from bilevel.apps.cleaning.columns import Array
from bilevel.apps.cleaning.counting import ENOUGH, FEW
from bilevel.apps.cleaning.pool import TEMPERATURE, Evidence, Pool, Terms, Verdict, fit_pool

_TRUSTED_EXPERTS = (experts.extra_trees, experts.kernel_ridge, experts.linear_ridge)
_NO_NOISE = 1e-9
_LOST, _SEEN, _COMMON = 0.5, 0.5, 0.02  # of a class's rows, of its labels, of all labels

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
        pool: of the same experts, for new rows.
        blind: whether the first pool was.
        guesses: the first pool's, of all rows.
        doubts: the first pool's P(wrong) of all rows, trusted ones treated as doubtful.
        plain: of doubtful rows, the probabilities by the mean of the first experts' logs.
    """

    verdict: Verdict
    opinions: list[experts.Opinion]
    pool: Pool
    blind: bool
    guesses: Array
    doubts: Array
    plain: Array


class Judge(NamedTuple):
    """The two rounds, on distinct rows.

    Args:
        data: the distinct rows; their labels come with each round.
        codes, trusted: the given label of each row, and whether it is right.
        copy_of: of which distinct row each is a copy.
        classes: how many there are.
        stages: told the progress.
        votes: (rows, annotators), or None.
    """

    data: experts.Rows
    codes: Array
    trusted: Array
    copy_of: Array
    classes: int
    stages: Stages
    votes: Array | None = None

    def _shared(self, Q: Array, which: Array | slice = slice(None)) -> Array:
        """The mean label of the copies of each row."""
        total = np.zeros((len(self.data.weight), self.classes))
        np.add.at(total, self.copy_of[which], Q[which])
        return np.asarray(total / np.maximum(total.sum(1, keepdims=True), 1e-9))

    def rounds(self) -> Judged:
        """Both rounds.

        Whatever is said about trusted rows must come from the first round: in the second, a row's
        label has shaped its neighbours' soft labels.
        """
        soft, known = np.eye(self.classes)[self.codes], int(self.trusted.sum())
        if self.votes is not None:
            soft[~self.trusted] = agreed(self.votes, self.classes)[~self.trusted]
        first = self._round(soft, "first")
        opinions = [*(self._by_trusted_rows() if known >= ENOUGH else []), *first]
        how, logs = self._by_votes(soft), self._logs(opinions)
        verdict, mean = self._pool(logs, Terms(hard_rows=False, **how)), self._mean(first)
        lost = known < FEW and self.votes is None and self._is_blind(mean, verdict)
        if lost:
            rates = confident_rates(softmax(mean, axis=1), self.codes[~self.trusted])
            how = {"entropy": 0.0, "bias": 8.0, "rates": rates}
            verdict = self._pool(logs, Terms(hard_rows=False, **how))
        guesses = verdict.pool.probabilities(logs[:, self.copy_of]).argmax(1)
        beliefs = soft.copy()
        beliefs[self.trusted] = verdict.if_doubtful
        soft[~self.trusted] = beliefs[~self.trusted] = verdict.posterior
        doubts = 1 - beliefs[np.arange(len(beliefs)), self.codes]
        opinions += (second := self._round(soft, "second"))
        how |= self._by_votes(soft)
        self.stages("weighing the evidence")
        logs = self._logs(opinions)
        last = self._pool(logs, Terms(**how))
        pool = self._of_new_rows(last.pool, logs, len(second))
        plain = np.asarray(softmax(TEMPERATURE * mean, axis=1))
        return Judged(last, opinions, pool, lost and known < ENOUGH, guesses, doubts, plain)

    def _of_new_rows(self, last: Pool, logs: Array, second: int) -> Pool:
        """The mean of pools that take the labels as they are given, of the experts before the
        second round and of all; and of the last, where trusted rows hold it to the truth.

        To tell which labels are wrong is one thing, to do no worse than a model of the labels as
        they are another: noise that looks like hard rows is explained away, and so are hard rows.
        """
        if self.votes is not None:
            return last
        as_given = Terms(entropy=0.0, hard_rows=False, rates=np.full(self.classes, _NO_NOISE))
        before, after = (self._pool(part, as_given).pool for part in (logs[:-second], logs))
        before = Pool(np.append(before.weights, np.zeros(second)), before.bias)
        pools = [before, after, *([last] if self.trusted.sum() >= ENOUGH else [])]
        return Pool(*(np.mean([getattr(p, n) for p in pools], 0) for n in ("weights", "bias")))

    def _by_votes(self, soft: Array) -> dict[str, Any]:
        """What a pool is told about annotators: with several, noise is known without entropy."""
        if self.votes is None:
            return {}
        likelihood = log_likelihood(self.votes, abilities(self.votes, soft))
        return {"entropy": 0.0, "votes": likelihood[~self.trusted]}

    def _round(self, soft: Array, name: str) -> list[experts.Opinion]:
        data, found = self.data._replace(Q=self._shared(soft)), []
        for expert in experts.ALL:
            self.stages(f"{name} look: {expert.__name__.replace('_', ' ')}")
            found.append(expert(data))
        return found

    def _by_trusted_rows(self) -> list[experts.Opinion]:
        """Experts that saw nothing but trusted rows."""
        weight = np.bincount(self.copy_of[self.trusted], minlength=len(self.data.weight))
        Q = self._shared(np.eye(self.classes)[self.codes], self.trusted)
        rows = np.flatnonzero(weight)
        data = self.data._replace(Q=Q, weight=weight.astype(float), rows=rows)
        return [expert(data) for expert in _TRUSTED_EXPERTS]

    def _logs(self, opinions: list[experts.Opinion]) -> Array:
        small = floor(self.classes)
        return np.stack([logs_of(opinion.scores, small) for opinion in opinions])

    def _pool(self, logs: Array, terms: Terms) -> Verdict:
        sides = [(logs[:, self.copy_of[m]], self.codes[m]) for m in (~self.trusted, self.trusted)]
        return fit_pool(Evidence(*sides[0], *sides[1]), terms, self.data.seed)

    def _mean(self, opinions: list[experts.Opinion]) -> Array:
        return np.asarray(self._logs(opinions).mean(0, dtype=float)[self.copy_of[~self.trusted]])

    def _is_blind(self, mean: Array, verdict: Verdict) -> bool:
        """Whether the pool has lost a class: it believes in less than half of the rows that the
        mean of the experts does.

        Of more than two classes, one that the experts hardly see may well be nothing but errors.
        """
        given = np.bincount(self.codes[~self.trusted], minlength=self.classes)
        seen = np.bincount(mean.argmax(1), minlength=self.classes) >= _SEEN * given
        common = given > min(_COMMON, 0.5 / self.classes) * len(mean)
        left = verdict.posterior.mean(0) / softmax(TEMPERATURE * mean, axis=1).mean(0)
        return bool((left[common & (seen | (self.classes == 2))] < _LOST).any())


def floor(classes: int) -> float:
    """The least probability that an expert may give to a class."""
    return min(0.01, 0.25 / classes)


def logs_of(scores: Array, small: float) -> Array:
    return np.asarray(np.log(np.clip(scores, small, 1 - small)), np.float32)


def folds(codes: Array, seed: int) -> Array:
    """Each row's fold, the classes spread evenly."""
    fold, random = np.empty(len(codes), int), np.random.default_rng(seed)
    for k in np.unique(codes):
        rows = random.permutation(np.flatnonzero(codes == k))
        fold[rows] = (np.arange(len(rows)) + k) % experts.FOLDS
    return fold


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
