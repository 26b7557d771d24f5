"""How good a linear model is, and how well a score finds the wrong labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from torch import Tensor
from torch.nn.functional import cross_entropy

LabelledRows = tuple[Tensor, Tensor]  # rows, dense or CSR, and their labels


def model_scores(W: Tensor, parts: Mapping[str, LabelledRows]) -> dict[str, float]:
    """The mean cross-entropy and the accuracy of softmax(XW) on each part.

    Example:
        >>> import torch
        >>> X, labels = torch.eye(2), torch.tensor([0, 1])
        >>> model_scores(9 * torch.eye(2), {"test": (X, labels)})["test_accuracy"]
        1.0
    """
    scores: dict[str, float] = {}
    for name, (X, labels) in parts.items():
        scores |= scores_of(name, X @ W, labels)
    return scores


def scores_of(name: str, Z: Tensor, labels: Tensor) -> dict[str, float]:
    """The mean cross-entropy and the accuracy of softmax(Z)."""
    accuracy = float((Z.argmax(1) == labels).double().mean())
    return {f"{name}_loss": float(cross_entropy(Z, labels)), f"{name}_accuracy": accuracy}


def auc(scores: Any, wrong: NDArray[np.bool_]) -> float:
    """The area under the ROC curve: how often a wrong row scores above a right one.

    Ties count one half. NaN if all rows are wrong, or none.

    Example:
        >>> import numpy as np
        >>> auc([0.1, 0.9, 0.8, 0.2], np.array([False, True, False, False]))
        1.0
    """
    positives, negatives = int(wrong.sum()), int((~wrong).sum())
    if not positives or not negatives:
        return float("nan")
    ranks = rankdata(np.asarray(scores))[wrong].sum()
    return float((ranks - positives * (positives + 1) / 2) / (positives * negatives))
