"""Which labels are wrong: cross-fitted experts, a pool with a noise model, two rounds.

Round 1: experts on the labels as they are given, and a pool. Round 2: experts on the soft labels
that the first pool believes in; the last pool weighs the experts of both rounds.

A pool without trusted rows can be blind: where classes are hard to tell apart, or experts know next
to nothing about very noisy labels, giving all rows of a class to another costs less likelihood than
it gains in entropy. That is noticed (the pool has lost a class that the experts see), the error
rates are then taken from the confident joint (Northcutt, Jiang & Chuang, JAIR 2021), and the user
is told.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from bilevel.apps.cleaning import counting
from bilevel.apps.cleaning.annotators import right_share
from bilevel.apps.cleaning.columns import Array, Column, recognise
from bilevel.apps.cleaning.experts import ALL, Rows
from bilevel.apps.cleaning.features import Encoder, copies_of
from bilevel.apps.cleaning.pool import Pool
from bilevel.apps.cleaning.rounds import Judge, Progress, Stages, floor, folds, logs_of


@dataclass(frozen=True)
class Model:
    """The pool as a classifier of new rows; it carries its own features."""

    encoder: Encoder
    classes: Array
    experts: list[Any]
    pool: Pool

    def probabilities(self, table: pd.DataFrame) -> Array:
        """Of each class, for each row."""
        features, small = self.encoder.transform(table), floor(len(self.classes))
        logs = np.stack([logs_of(expert.scores(features), small) for expert in self.experts])
        return self.pool.probabilities(logs)


@dataclass(frozen=True, kw_only=True)
class Findings(counting.Answers):
    """What is thought of each row's class.

    Args:
        classes: in order.
        labels: (rows, classes), the probability of each label; trusted rows are sure.
        model: a classifier of new rows.
        annotators: the mean share of right labels of each, as it is thought; None without them.
    """

    classes: Array
    labels: Array
    model: Model
    annotators: Array | None = None

    @cached_property
    def likely(self) -> Array:
        """The likeliest label of each row; pages ask for it row by row."""
        return np.asarray(self.classes[self.labels.argmax(1)])


def find_wrong_labels(
    table: Any,
    labels: Any,
    *,
    trusted: Any = None,
    fair: Any = None,
    audit: tuple[int, int] | None = None,
    annotators: Any = None,
    columns: list[Column] | None = None,
    seed: int = 0,
    jobs: int | None = None,
    progress: Progress = lambda *_: None,
) -> Findings:
    """Judge every label of a table; the rows that `trusted` marks are right.

    Args:
        table: a DataFrame of numbers, categories, dates and free text, with gaps; or an array.
        labels: one for each row.
        trusted: a mask of the rows whose labels are known to be right; none by default.
        fair: which of these are a fair sample of all rows, and may stand for them in what is said
            about others; all of them by default.
        audit: of a sample, how many labels were checked and how many were wrong; with `fair` it
            counts in any case, without it only if it does not contradict the other labels.
        annotators: (rows, annotators), the labels that each of them gave; None where one gave none.
            Each by themselves: give the votes of one who copied another's only once.
        columns: what each column holds, as `recognise` gives it by default.
        seed: of folds, forests and landmarks.
        jobs: processes for the forests.
        progress: told (stage, how many are done, how many there are).

    Example:
        >>> random = np.random.default_rng(0)
        >>> right = np.arange(200) % 2
        >>> table = pd.DataFrame({"size": right + 0.3 * random.normal(size=200)})
        >>> labels = right.copy(); labels[:20] = 1 - labels[:20]
        >>> found = find_wrong_labels(table, labels)
        >>> bool(found.flagged[:20].mean() > 0.9), bool(found.flagged[20:].mean() < 0.1)
        (True, True)
    """
    frame = table if isinstance(table, pd.DataFrame) else pd.DataFrame(np.asarray(table))
    mask = np.zeros(len(frame), bool) if trusted is None else np.asarray(trusted, bool)
    classes, codes = np.unique(np.asarray(labels), return_inverse=True)
    columns = columns or recognise(frame)
    stages = Stages(progress, 2 + 2 * len(ALL))
    stages("reading the columns")
    encoder, whole = Encoder.learn(frame, columns, seed)
    copies, first, copy_of = copies_of(frame, encoder, codes)
    features = whole.of(first)
    del whole  # as large as all that is kept
    votes = None
    if annotators is not None:
        votes = pd.Index(classes).get_indexer(np.ravel(np.asarray(annotators, object)))
        votes = votes.reshape(len(frame), -1)
    counted = np.zeros((len(copies), len(classes)))
    np.add.at(counted, (copy_of, codes), 1)
    fold, everything = folds(counted.argmax(1), seed), np.arange(len(copies))
    data = Rows(features, counted, copies, fold, everything, seed, jobs)
    judged = Judge(data, codes, mask, copy_of, len(classes), stages, votes).rounds()
    stages("done")
    doubtful, beliefs = np.flatnonzero(~mask), judged.verdict.posterior
    held = mask.sum() if votes is None else len(mask)  # annotators hold each other to the truth
    own, given = np.arange(len(doubtful)), codes[doubtful]
    by_pool = 1 - judged.verdict.posterior[own, given]
    flags = int(counting.most_expected_f1(by_pool).sum())
    if held < counting.ENOUGH:  # nothing holds the pool to the truth: the plain experts, too
        beliefs = (beliefs + judged.plain) / 2
        most = counting.most_by_sure_rows(judged.plain, given)
        flags = min(counting.half_way(flags, judged.plain, given), round(most), len(given) // 2)
        by_pool = by_pool * min(1, most / max(by_pool.sum(), 1e-9))
    elif held < counting.FEW:
        beliefs = counting.with_every_class(beliefs, codes[mask])
    soft, wrong = np.eye(len(classes))[codes], np.zeros(len(frame))
    soft[doubtful], wrong[doubtful] = beliefs, 1 - beliefs[own, given]
    known = mask if fair is None else mask & np.asarray(fair, bool)
    guesses, doubts = judged.guesses, judged.doubts
    count = counting.how_many(by_pool, given, guesses[doubtful], guesses[known], codes[known])
    flags, precise = counting.held_back(flags, by_pool, doubts[doubtful], doubts[known])
    sure = judged.blind or fair is not None
    if (audited := counting.by_audit(audit, len(doubtful), count, sure)) is not None:
        count = audited
    else:
        count, precise = counting.agreeing(count, flags, precise)
    return Findings(
        classes=classes,
        columns=columns,
        wrong=wrong,
        labels=soft,
        flagged=counting.the_worst(wrong, flags),
        trusted=mask,
        count=count,
        precision=precise,
        checked=counting.how_right(guesses[known] == codes[known]),
        blind=judged.blind,
        annotators=None if votes is None else right_share(votes, soft),
        model=Model(encoder, classes, [o.model for o in judged.opinions], judged.pool),
    )
