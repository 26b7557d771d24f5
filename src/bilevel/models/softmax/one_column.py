"""Linear models with one output: two classes, or a number."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bilevel.models.softmax.form import Matrix, Penalty, SigmoidWeights
from bilevel.models.softmax.losses import Logistic, Squared
from bilevel.models.softmax.problem import linear_problem, rows_and_labels
from bilevel.problem.problem import Problem
from bilevel.problem.structure import Variables


def logistic_problem(
    train: tuple[Any, Any],
    validation: tuple[Any, Any],
    *,
    weights: SigmoidWeights | Any | None = None,
    penalty: Penalty,
    x0: Variables | None = None,
    y0: Tensor | None = None,
) -> Problem:
    """A logistic regression of two classes, with one weight for each feature.

        g(x, w) = (1/n) Σ_i s_i(x) log(1 + exp(−b_i a_i'w)) + R(x, w),  b_i = ±1

    and f the mean loss of the validation rows: half the variables of `softmax_problem`.

    Args:
        train, validation: (features, labels) each; labels 0 and 1, or −1 and 1.
        weights, penalty, x0, y0: as in `softmax_problem`; y has shape (features, 1).

    Example:
        >>> import torch, bilevel
        >>> X = torch.randn(60, 3, generator=torch.Generator().manual_seed(0)).double()
        >>> b = (X[:, 0] > 0).long()
        >>> problem = bilevel.logistic_problem(
        ...     (X[:40], b[:40]), (X[40:], b[40:]), penalty=bilevel.PerFeature(scale=0.5))
        >>> result = bilevel.minimize(problem, steps=20)
        >>> int(result.x.argmin())  # the feature that decides is penalised least
        0
    """
    both = _signs("train", train), _signs("validation", validation)
    return linear_problem(*both, 1, Logistic(), weights, penalty, x0, y0)


def regression_problem(
    train: tuple[Any, Any],
    validation: tuple[Any, Any],
    *,
    weights: SigmoidWeights | Any | None = None,
    penalty: Penalty,
    x0: Variables | None = None,
    y0: Tensor | None = None,
) -> Problem:
    """A least-squares regression whose sample weights or penalties are learned.

        g(x, w) = (1/2n) Σ_i s_i(x) (a_i'w − b_i)² + R(x, w)

    and f half the mean square on the validation rows.

    Args:
        train, validation: (features, numbers) each.
        weights, penalty, x0, y0: as in `softmax_problem`; y has shape (features, 1).

    Example:
        >>> import torch, bilevel
        >>> X = torch.randn(60, 3, generator=torch.Generator().manual_seed(0)).double()
        >>> problem = bilevel.regression_problem(
        ...     (X[:40], X[:40, 0]), (X[40:], X[40:, 0]), penalty=bilevel.PerFeature())
        >>> result = bilevel.minimize(problem, steps=20)
        >>> int(result.x.argmin())
        0
    """
    both = _numbers("train", train), _numbers("validation", validation)
    return linear_problem(*both, 1, Squared(), weights, penalty, x0, y0)


def _signs(name: str, data: tuple[Any, Any]) -> tuple[Matrix, Tensor]:
    """Labels as 0 and 1."""
    rows, labels = rows_and_labels(name, data)
    found = set(labels.numpy().tolist())
    if not (found <= {0, 1} or found <= {-1, 1}):
        raise ValueError(
            f"{name} labels must be 0 and 1, or −1 and 1; there are {sorted(found)[:5]}. For more "
            "classes use softmax_problem"
        )
    return rows, (labels > 0).long()


def _numbers(name: str, data: tuple[Any, Any]) -> tuple[Matrix, Tensor]:
    rows, labels = rows_and_labels(name, data)
    if not bool(torch.isfinite(labels).all()):
        raise ValueError(f"{name} has numbers to predict that are not finite: leave those rows out")
    return rows, labels.to(rows.dtype)
