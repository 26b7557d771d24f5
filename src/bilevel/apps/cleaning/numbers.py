"""Which labels are wrong where they are numbers: gross errors among ordinary ones.

The same experts, each row judged by fits without its own value, in two rounds: the second learns
from values that the first thinks wrong only as far as it believes them. A row's residual comes
from one of two laws,

    e ~ (1 − π) s(x) t_ν(0, σ) + π g(e)

the first with tails as heavy as the residuals show, and a scale s(x) that other rows foretell; the
second, of gross errors, one of three. P(wrong) is the posterior of the second, in the mean over the
laws by their likelihood.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import nnls
from scipy.special import softmax
from scipy.stats import norm, t

from bilevel.apps.cleaning import counting, experts
from bilevel.apps.cleaning.columns import Array, Column, recognise
from bilevel.apps.cleaning.features import Encoder, copies_of
from bilevel.apps.cleaning.rounds import Progress, Stages

_EXPERTS = experts.ALL[1:]  # softmax regression is for classes
_FAR = 8.0  # robust scales beyond which a value teaches no more than that it is far
_TAILS = (3.0, 6.0, 30.0)  # ν
_START, _MORE = 10.0, 20.0  # τ in median errors; nats that a skewed law of right values may gain
_EM, _RARE = 60, 9.0  # steps; the prior's rows without a gross error for one with it
_WIDER = 3.0  # a gross error is at least so many times an ordinary one
_INSIDE = 0.9  # of right values are in their interval
_FACTOR, _OFFSET = 1.6, 0.02


class _Gross(Enum):
    """How gross errors are spread: N(0, τ²); with far tails, (2/πτ) x² / (1 + x²)² of x = e/τ; or
    all much alike, as by a wrong unit, N(μ, τ²).
    """

    WIDE, FAR, ALIKE = range(3)


@dataclass(frozen=True)
class NumberModel:
    """The experts' mean as a model of new rows; it carries its own features."""

    encoder: Encoder
    experts: list[Any]
    weights: Array
    spread: Any
    usual: float
    centre: float
    scale: float
    reach: float

    def values(self, table: pd.DataFrame) -> tuple[Array, Array]:
        """The expected value of each row, and how far a right one may be off (90 %)."""
        features = self.encoder.transform(table)
        scores = np.column_stack([expert.scores(features)[:, 0] for expert in self.experts])
        far = np.maximum(self.spread.scores(features)[:, 0], 0)
        return self.centre + self.scale * scores @ self.weights, self.reach * _scales(
            far, self.usual
        )


@dataclass(frozen=True, kw_only=True)
class NumberFindings(counting.Answers):
    """What is thought of each row's value.

    Args:
        likely, low, high: the likely value, and where 90 % of right ones are.
        model: of new rows.
    """

    likely: Array
    low: Array
    high: Array
    model: NumberModel


class _Fit(NamedTuple):
    """Opinions, their weights, and the two laws' verdict on each row as if all were doubtful."""

    opinions: list[experts.Opinion]
    weights: Array
    expected: Array
    wrong: Array
    spread: Any
    usual: float
    scale: Array
    reach: float  # of the interval, in scales s


def find_wrong_numbers(
    table: Any,
    values: Any,
    *,
    trusted: Any = None,
    fair: Any = None,
    audit: tuple[int, int] | None = None,
    columns: list[Column] | None = None,
    seed: int = 0,
    jobs: int | None = None,
    progress: Progress = lambda *_: None,
) -> NumberFindings:
    """Judge every value of a column of numbers by the rest of the table.

    Args:
        table: a DataFrame of numbers, categories, dates and free text, with gaps; or an array.
        values: one for each row.
        trusted, fair, audit, columns, seed, jobs, progress: as of `find_wrong_labels`.

    Example:
        >>> random = np.random.default_rng(0)
        >>> size = random.uniform(1, 3, 200)
        >>> price = 10 * size + random.normal(size=200)
        >>> price[:10] *= 10
        >>> found = find_wrong_numbers(pd.DataFrame({"size": size}), price)
        >>> np.flatnonzero(found.flagged).tolist()
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    frame = table if isinstance(table, pd.DataFrame) else pd.DataFrame(np.asarray(table))
    given = np.asarray(values, float)
    mask = np.zeros(len(frame), bool) if trusted is None else np.asarray(trusted, bool)
    columns = columns or recognise(frame)
    stages = Stages(progress, 1 + 2 * len(_EXPERTS))
    stages("reading the columns")
    encoder, whole = Encoder.learn(frame, columns, seed)
    copies, first, copy_of = copies_of(frame, encoder, given)
    centre = float(np.median(given))
    scale = float(np.median(np.abs(given - centre))) * 1.4826 or float(given.std()) or 1.0
    z = (given - centre) / scale
    features = whole.of(first)
    del whole  # as large as all that is kept
    fold = np.zeros(len(copies), int)
    data = experts.Rows(
        features, np.zeros((0, 1)), copies, fold, np.arange(len(copies)), seed, jobs
    )
    look = _Look(data, copy_of, z, mask, stages)
    before = look.fit(np.clip(z, -_FAR, _FAR), np.zeros(len(z)), "first")
    belief = np.where(mask, 0, before.wrong)
    now = look.fit(belief * before.expected + (1 - belief) * z, belief, "second")
    stages("done")
    doubtful, known = ~mask, mask if fair is None else mask & np.asarray(fair, bool)
    wrong = np.where(mask, 0, now.wrong)
    flags = int(counting.most_expected_f1(wrong[doubtful]).sum())
    likely, far = centre + scale * now.expected, now.reach * scale * now.scale
    model = NumberModel(
        encoder,
        [opinion.model for opinion in now.opinions],
        now.weights,
        now.spread,
        now.usual,
        centre,
        scale,
        now.reach * scale,
    )
    doubts = before.wrong
    flags, precise = counting.held_back(flags, wrong[doubtful], doubts[doubtful], doubts[known])
    total, rows = float(wrong.sum()), int(doubtful.sum())
    low = 0.0 if precise is None else min(flags * precise[0], total)
    count = low, total, min(_FACTOR * total + _OFFSET * rows, rows)
    count = counting.by_audit(audit, rows, count, sure=fair is not None) or count
    return NumberFindings(
        columns=columns,
        wrong=wrong,
        likely=likely,
        low=likely - far,
        high=likely + far,
        flagged=counting.the_worst(wrong, flags),
        trusted=mask,
        count=count,
        precision=precise,
        checked=counting.how_right((np.abs(given - likely) <= far)[known]),
        model=model,
    )


class _Look(NamedTuple):
    """One round: experts, their weights, the laws of the residuals."""

    data: experts.Rows
    copy_of: Array
    z: Array
    trusted: Array
    stages: Stages

    def _on(self, values: Array) -> experts.Rows:
        total = np.bincount(self.copy_of, values, len(self.data.weight))
        return self.data._replace(Q=(total / self.data.weight)[:, None])

    def fit(self, target: Array, doubt: Array, name: str) -> _Fit:
        opinions, data = [], self._on(target)
        for expert in _EXPERTS:
            self.stages(f"{name} look: {expert.__name__.replace('_', ' ')}")
            opinions.append(expert(data))
        scores = np.column_stack([opinion.scores[self.copy_of, 0] for opinion in opinions])
        root = np.sqrt(1 - doubt) + 1e-3
        weights = nnls(root[:, None] * scores, root * target)[0]
        if not weights.any():
            weights = np.full(len(opinions), 1 / len(opinions))
        expected = scores @ weights
        error = self.z - expected
        spread = experts.extra_trees(
            self._on(np.minimum(np.abs(error), 4 * np.median(np.abs(error))))
        )
        far = np.maximum(spread.scores[self.copy_of, 0], 0)
        usual = float(np.median(far))
        scale = _scales(far, usual)
        wrong = _two_laws(error, scale, self.trusted)
        sure = np.where(self.trusted, 1, 1 - wrong)
        order = np.argsort(off := np.abs(error) / scale)
        reach = off[order][np.searchsorted(np.cumsum(sure[order]), _INSIDE * sure.sum())]
        return _Fit(opinions, weights, expected, wrong, spread.model, usual, scale, float(reach))


def _scales(far: Array, usual: float) -> Array:
    """s(x) of each row: what other rows foretell, drawn half-way to their median."""
    return np.asarray(np.sqrt(far * usual) + 1e-9)


def _two_laws(error: Array, scale: Array, trusted: Array) -> Array:
    """P(the error is gross) of each row, as if it were doubtful.

    The mean over the laws, by likelihood: where two are almost as likely, and one of them has no
    gross errors, the best alone would turn on the last bits.
    """
    fits = [_by_em(error, scale, trusted, tail, law) for tail in _TAILS for law in _Gross]
    mean = softmax([fit for fit, _ in fits]) @ np.array([wrong for _, wrong in fits])
    return np.asarray(np.minimum(mean, 1))  # it is above by rounding alone


def _by_em(
    error: Array, scale: Array, trusted: Array, tail: float, law: _Gross
) -> tuple[float, Array]:
    """The log-likelihood, and P(the error is gross)."""
    share_, at, wide = 0.05, 0.0, _START * float(np.median(np.abs(error))) + 1e-9
    sigma = 1.4826 * float(np.median(np.abs(error / scale))) + 1e-9
    for _ in range(_EM):
        plain = t.pdf(error / (sigma * scale), tail) / (sigma * scale) + 1e-300
        x2 = ((error - at) / wide) ** 2
        shape = 2 / np.pi * x2 / (1 + x2) ** 2 if law is _Gross.FAR else norm.pdf(np.sqrt(x2))
        gross = shape / wide + 1e-300
        p = share_ * gross / (share_ * gross + (1 - share_) * plain)
        mine = np.where(trusted, 0, p)
        total = max(mine.sum(), 1e-9)
        share_ = mine.sum() / ((~trusted).sum() + _RARE)
        # The t law as a normal one of random scale: rows far out count less.
        heavy = (1 - mine) * (tail + 1) / (tail + (error / (sigma * scale)) ** 2)
        sigma = np.sqrt((heavy * (error / scale) ** 2).sum() / (1 - mine).sum()) + 1e-9
        least = _WIDER * sigma * float(np.median(scale))
        if law is _Gross.FAR:
            wide = max(wide * np.sqrt(4 / 3 * (mine * x2 / (1 + x2)).sum() / total), least)
            continue
        at = (mine * error).sum() / total if law is _Gross.ALIKE else 0.0
        spread = (mine * (error - at) ** 2).sum() / total
        wide = np.sqrt(max(spread, least**2 - at**2, (least / _WIDER**2) ** 2))
    mixed = np.where(trusted, plain, share_ * gross + (1 - share_) * plain)
    return float(np.log(mixed).sum()) - _MORE * (law is _Gross.ALIKE), p
