"""Several people labelled the rows: how good each of them is, and what their votes say together.

Dawid & Skene, JRSS C 1979: annotator j writes l where k is true with probability T_j[k, l], and
each does so independently of the others. Here the share of each class is not one number for all
rows: experts give it for each row, so that T is learned from what the rows are like, too.
"""

from __future__ import annotations

import numpy as np

from bilevel.apps.cleaning.columns import Array

_STEPS = 30
_KEPT, _SPREAD = 4.0, 1.0  # the prior's votes of each class: right ones, and others shared out


def abilities(votes: Array, beliefs: Array) -> Array:
    """T of each annotator, (annotators, classes, classes), by what is believed of each row.

    Args:
        votes: (rows, annotators), codes of classes; −1 where there is none.
        beliefs: (rows, classes), the probability of each true class.
    """
    classes = beliefs.shape[1]
    prior = np.full((classes, classes), _SPREAD / classes) + _KEPT * np.eye(classes)
    counts = np.stack([prior + _counted(column, beliefs) for column in votes.T])
    return np.asarray(counts / counts.sum(2, keepdims=True))


def _counted(votes: Array, beliefs: Array) -> Array:
    voted = votes >= 0
    hot = np.eye(beliefs.shape[1])[votes[voted]]
    return np.asarray(beliefs[voted].T @ hot)


def log_likelihood(votes: Array, T: Array) -> Array:
    """Of each row's votes for each true class, (rows, classes).

    >>> T = np.array([[[0.9, 0.1], [0.2, 0.8]]])
    >>> np.exp(log_likelihood(np.array([[1], [-1]]), T)).round(3).tolist()
    [[0.1, 0.8], [1.0, 1.0]]
    """
    total = np.zeros((len(votes), T.shape[1]))
    for column, of_one in zip(votes.T, T, strict=True):
        voted = column >= 0
        total[voted] += np.log(of_one)[:, column[voted]].T
    return total


def agreed(votes: Array, classes: int) -> Array:
    """What the votes alone say of each row, by EM from the shares of the votes."""
    hot = np.stack([(votes == k).sum(1) for k in range(classes)], 1).astype(float)
    beliefs = (hot + 0.01) / (hot + 0.01).sum(1, keepdims=True)
    for _ in range(_STEPS):
        logs = log_likelihood(votes, abilities(votes, beliefs)) + np.log(beliefs.mean(0))
        beliefs = np.exp(logs - logs.max(1, keepdims=True))
        beliefs /= beliefs.sum(1, keepdims=True)
    return np.asarray(beliefs)


def right_share(votes: Array, beliefs: Array) -> Array:
    """The share of right labels of each annotator."""
    right = np.diagonal(abilities(votes, beliefs), axis1=1, axis2=2)
    return np.asarray(right @ beliefs.mean(0))
