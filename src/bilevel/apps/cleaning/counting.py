"""How many labels are wrong, which of them to flag, and how sure that is.

Without rows whose labels were checked, none of this can be known: a row that is hard to tell and a
wrong label look the same. So nothing is stated about the share of wrong labels among the flagged
then, and the interval of their number begins at zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from bilevel.apps.cleaning.columns import Array, Column

ENOUGH = 20  # checked rows from which an interval rests on them and on a model
LEAST = 10  # rows of the table, picked at random, from which it rests on their labels alone
_SURE = 0.8  # of the flags' mean P(wrong) was true on the development tables
_LEAST = 0.2  # a label that is wrong with less probability is not flagged
_NORMAL = 1.645  # 90 %
# Without trusted rows: what 9 of 10 settings of the development tables kept to
# (docs/benchmarks/tables.md).
_FACTOR, _OFFSET = 1.6, 0.04
_SUREST, _BEYOND = 0.75, 0.02  # the surest quarter of each class; rows beyond their disagreement
_PRECISE = 0.4  # of the flags, at least, should be wrong
_MOSTLY, _NONE = 0.5, 0.5  # of the flags; fewer labels than that are perhaps none
_PRIOR = 20  # checked rows that the model's own opinion of its flags is worth
FEW = 50  # trusted rows below which a pool may lose a class
_KEPT, _STEP, _STEPS = 0.5, 0.05, 200  # of a class's expected rows; nats; how many of them

Interval = tuple[float, float, float]  # the least, the expected and the largest number


def most_expected_f1(wrong: Array) -> Array:
    """The flags with the greatest expected F1: max over j of 2 Σ_top j p / (j + Σ p).

    >>> most_expected_f1(np.array([0.9, 0.1, 0.8, 0.0])).tolist()
    [True, False, True, False]
    """
    p = np.sort(wrong)[::-1]
    gain = 2 * np.cumsum(p) / (np.arange(1, len(p) + 1) + max(p.sum(), 1e-300))
    return np.asarray((wrong >= p[gain.argmax()]) & (wrong > _LEAST))


def the_worst(wrong: Array, number: int) -> Array:
    """So many of the most suspicious rows."""
    flags = np.zeros(len(wrong), bool)
    flags[np.argsort(-wrong, kind="stable")[:number]] = True
    return flags


def most_by_sure_rows(probabilities: Array, given: Array) -> float:
    """How many labels may be called wrong where none or few are known to be right.

    Labels that go wrong at random go wrong in easy rows, too. So the surest quarter of each class
    shows the rate; where these rows keep to their labels, what disagrees elsewhere is rather hard
    to tell than wrong. Noise that keeps to the hard rows cannot be told from that, and is left a
    small share.

    >>> easy = np.array([[0.9, 0.1]] * 50 + [[0.1, 0.9]] * 50)
    >>> most_by_sure_rows(easy, np.arange(100) // 50)
    2.0
    """
    best, sure = probabilities.argmax(1), probabilities.max(1)
    surest = np.zeros(len(given), bool)
    for k in np.unique(best):
        surest |= (best == k) & (sure >= np.quantile(sure[best == k], _SUREST))
    return len(given) * float((best != given)[surest].mean() + _BEYOND)


def half_way(flags: int, probabilities: Array, given: Array) -> int:
    """More flags, half-way to the rows with which the plain experts disagree.

    Near a boundary a pool that nothing holds to the truth explains wrong labels as hard rows.

    >>> half_way(2, np.array([[0.9, 0.1]] * 8), np.array([1] * 6 + [0] * 2))
    4
    """
    apart = int((probabilities.argmax(1) != given).sum())
    return max(flags, round((flags + apart) / 2))


def with_every_class(beliefs: Array, right: Array) -> Array:
    """Beliefs in which no class is the likeliest of far too few rows.

    Where little is known, no row may be likelier to be of a rare class than of a common one, though
    some must be: by the sum of their probabilities, or by the trusted rows' share (the least of its
    interval). Such a class is made likelier, equally in all rows, until half of them are its own.

    >>> beliefs = np.array([[0.9, 0.1]] * 80 + [[0.6, 0.4]] * 20)
    >>> np.bincount(with_every_class(beliefs, np.zeros(0)).argmax(1)).tolist()
    [80, 20]
    """
    rows, classes = beliefs.shape
    known = [
        share(int((right == k).sum()), len(right))[0] if len(right) else 0 for k in range(classes)
    ]
    least = np.floor(_KEPT * rows * np.maximum(beliefs.mean(0), known))
    logs, tilt = np.log(beliefs + 1e-12), np.zeros(classes)
    for _ in range(_STEPS):
        short = np.bincount((logs + tilt).argmax(1), minlength=classes) < least
        if not short.any():
            break
        tilt += _STEP * short
    return np.asarray(softmax(logs + tilt, axis=1))


def share(hits: int, rows: int) -> Interval:
    """Wilson's interval of a share, 90 %, and the share itself."""
    z2, p = _NORMAL**2, hits / rows
    centre = (p + z2 / (2 * rows)) / (1 + z2 / rows)
    half = _NORMAL * np.sqrt(p * (1 - p) / rows + z2 / (4 * rows * rows)) / (1 + z2 / rows)
    return max(float(centre - half), 0.0), p, min(float(centre + half), 1.0)


def how_right(guessed: Array) -> tuple[int, int, float, float] | None:
    """Trusted rows, how many were guessed, and the interval of the share."""
    rows, hits = len(guessed), int(guessed.sum())
    return (rows, hits, *share(hits, rows)[::2]) if rows >= ENOUGH else None


def how_precise(
    flagged: int, wrong: Array, doubts: Array, trusted_doubts: Array
) -> Interval | None:
    """The share of the flags that is wrong: least, expected and largest (90 %).

    A trusted row that would have been flagged is a false alarm. Their share, times the rows whose
    labels are right, is the number of flags that are not wrong. What the model thinks of its flags
    counts as some trusted rows more, for what is expected. None with too few trusted rows.
    """
    rows, trusted = len(doubts), len(trusted_doubts)
    if trusted < ENOUGH or not flagged:
        return None
    last = np.sort(doubts)[-flagged]
    least, alarms, most = share(int((trusted_doubts >= last).sum()), trusted)
    thought = flagged / rows * (1 - _SURE * float(np.sort(wrong)[-flagged:].mean()))
    likely = (_PRIOR * thought + trusted * alarms) / (_PRIOR + trusted)
    right = rows - float(wrong.sum())
    low, expected, high = (
        float(np.clip(1 - right * f / flagged, 0, 1)) for f in (most, likely, least)
    )
    return low, float(np.clip(expected, low, high)), high


def held_back(
    flags: int, wrong: Array, doubts: Array, trusted_doubts: Array
) -> tuple[int, Interval | None]:
    """As many flags as checked rows can bear, and how precise they are.

    Where these show most of the flags to be false alarms, there are fewer: the most suspicious
    ones, if any.
    """
    for part in (1.0, 0.7, 0.5, 0.35, 0.25, 0.17, 0.12, 0.08, 0.05):
        number = round(part * flags)
        precise = how_precise(number, wrong, doubts, trusted_doubts)
        if precise is None or precise[1] >= _PRECISE:
            return number, precise
    return 0, None


def how_many(
    wrong: Array, given: Array, guesses: Array, trusted_guesses: Array, right: Array
) -> Interval:
    """The least, the expected and the largest number of wrong labels (90 %).

    With accuracy a on trusted rows and agreement g with the given labels,
    g = a (1 − rate) + (1 − a) rate/(K − 1); both shares have binomial errors. This supposes that
    labels go wrong no more often where the guesses do: near a boundary they may, and the interval
    is too low.
    """
    n, m, expected = len(given), len(right), float(wrong.sum())
    if m < ENOUGH:
        return 0.0, expected, min(expected * _FACTOR + _OFFSET * n, n)
    classes = int(max(given.max(), right.max())) + 1
    a, g = ((trusted_guesses == right).sum() + 1) / (m + 2), float((guesses == given).mean())
    gain = max(a - (1 - a) / (classes - 1), 0.1)
    rate, error = (a - g) / gain, np.sqrt(a * (1 - a) / m + g * (1 - g) / n) / gain
    low, high = n * np.clip((rate - _NORMAL * error, rate + _NORMAL * error), 0, 1)
    return min(float(low), expected), expected, max(float(high), expected)


def agreeing(
    count: Interval, flags: int, precise: Interval | None
) -> tuple[Interval, Interval | None]:
    """The number of wrong labels and the share of wrong flags, neither contradicting the other.

    Where most flags are surely wrong, so many labels are. Where perhaps no label is wrong, perhaps
    no flag is. Where nothing is known of the flags, all of them may be wrong.

    >>> agreeing((0.0, 90.0, 120.0), 100, (0.6, 0.9, 1.0))
    ((60.0, 90.0, 120.0), (0.6, 0.9, 1.0))
    >>> agreeing((0.0, 20.0, 60.0), 50, (0.2, 0.5, 0.7))
    ((0.0, 20.0, 60.0), (0.0, 0.5, 0.7))
    """
    low, expected, high = count
    if precise is None:
        return (low, expected, max(high, flags)), None
    if precise[0] >= _MOSTLY:
        low = max(low, flags * precise[0])
    elif low < _NONE:
        precise = 0.0, *precise[1:]
    return (low, max(low, expected), max(low, high)), precise


def by_audit(
    audit: tuple[int, int] | None, rows: int, count: Interval, sure: bool
) -> Interval | None:
    """The same, of rows of which a fair sample was checked: no model is needed for that.

    Unless it is sure that the sample is fair, one that contradicts the model is left out: perhaps
    its rows were picked by suspicion, or their labels had been mended before. So is a small one.

    >>> by_audit((100, 0), 1000, (180.0, 200.0, 220.0), sure=False) is None
    True
    """
    if audit is None or audit[0] < LEAST:
        return None
    checked, wrong = audit
    low, _, high = (rows * part for part in share(wrong, checked))
    if not sure and (high < count[0] or low > count[2]):
        return None
    return low, float(np.clip(count[1], low, high)), high


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What is thought of each row's label.

    Args:
        columns: what each column was taken for.
        wrong: P(the label is wrong), of a number that it is grossly so; 0 for trusted rows.
        flagged: the rows with the greatest expected F1.
        trusted: the rows that were given as right.
        count: how many labels are wrong: the least, the expected and the largest number (90 %).
        precision: the same of the share of the flagged labels that is wrong; None where too few
            rows were checked to tell.
        checked: trusted rows, how many of them models without their labels got right (of numbers:
            are inside of their interval), and the 90 % interval of that share; None with fewer
            than 20.
        judged: the rows that have a label; None: all.
        blind: the labels alone cannot tell how many are wrong.
    """

    columns: list[Column]
    wrong: Array
    flagged: Array
    trusted: Array
    count: Interval
    precision: Interval | None
    checked: tuple[int, int, float, float] | None
    judged: Array | None = None
    blind: bool = False

    @property
    def doubtful(self) -> Array:
        """The rows that are judged: those with a label that nobody vouches for."""
        return ~self.trusted if self.judged is None else self.judged & ~self.trusted
