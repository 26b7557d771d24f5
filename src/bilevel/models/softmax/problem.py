"""Softmax regression as a bilevel problem, from a user's data."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy  # its parts are loaded when first used
import torch
from torch import Tensor

from bilevel.arguments import instance, positive_integer
from bilevel.errors import quoted
from bilevel.models.softmax.form import Matrix, Penalty, SigmoidWeights, SoftmaxForm
from bilevel.models.softmax.losses import CrossEntropy, Loss
from bilevel.models.softmax.model import SoftmaxModel
from bilevel.problem.problem import Problem
from bilevel.problem.sources import as_source, as_stored, as_tensor, scipy_csr, torch_csr
from bilevel.problem.structure import Variables


def softmax_problem(
    train: tuple[Any, Any],
    validation: tuple[Any, Any],
    *,
    weights: SigmoidWeights | Any | None = None,
    penalty: Penalty,
    classes: int | None = None,
    x0: Variables | None = None,
    y0: Tensor | None = None,
) -> Problem:
    """A softmax regression whose sample weights or penalties are learned on validation rows.

    Args:
        train, validation: (features, labels) each; features dense, CSR or in a file
            (`bilevel.stored`, or a memory map), labels 0, ..., c − 1. Append a column of ones for
            a bias (`add_bias`).
        weights: `SigmoidWeights()` to learn one weight per training row, a vector of fixed
            weights, or None for equal weights.
        penalty: `Ridge(strength)`, `PerFeature()`, `PerClass()` or `PerWeight()`.
        classes: c; by default the largest label + 1.
        x0, y0: where to start; zeros by default. With learned weights and learned penalties, x
            is a dict of "weights" and "penalties". y has shape (features, classes).

    Example:
        >>> import torch, bilevel
        >>> X = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1]]).double()
        >>> b = torch.tensor([0, 1, 1])  # the last label is wrong
        >>> problem = bilevel.softmax_problem(
        ...     (X, b), (X[:2], b[:2]), weights=bilevel.SigmoidWeights(),
        ...     penalty=bilevel.Ridge(0.01))
        >>> algorithm = bilevel.algorithms.AIDBiO(
        ...     inner=bilevel.inner.NewtonCG(1e-8), outer_lr=1.0)
        >>> result = bilevel.minimize(problem, algorithm, steps=20)
        >>> result.x.argmin()
        tensor(2)
    """
    train_rows, train_labels = pair("train", train)
    validation_rows, validation_labels = pair("validation", validation)
    largest = int(max(train_labels.max(), validation_labels.max()))
    if classes is not None and largest >= positive_integer("classes", classes):
        raise ValueError(
            f"there is a label {largest}, but only {classes} classes: number them from 0, or give "
            "more classes"
        )
    rows = len(train_labels) + len(validation_labels)
    if classes is None and largest >= rows:
        raise ValueError(
            f"there is a label {largest}, but only {rows} rows: most would be empty. Number "
            "the classes from 0, or say how many with classes="
        )
    both = (train_rows, train_labels), (validation_rows, validation_labels)
    columns = classes or largest + 1
    return linear_problem(*both, columns, CrossEntropy(), weights, penalty, x0, y0)


def linear_problem(
    train: tuple[Matrix, Tensor],
    validation: tuple[Matrix, Tensor],
    columns: int,
    loss: Loss,
    weights: SigmoidWeights | Any | None,
    penalty: Penalty,
    x0: Variables | None,
    y0: Tensor | None,
) -> Problem:
    """A linear model with any of the losses, from features and labels already checked."""
    instance("penalty", penalty, Penalty, "bilevel.Ridge(0.01)")
    train_rows, validation_rows = train[0], validation[0]
    if train_rows.shape[1] != validation_rows.shape[1] or train_rows.dtype != validation_rows.dtype:
        raise ValueError(
            f"train rows are {tuple(train_rows.shape)} of {train_rows.dtype}, validation rows "
            f"{tuple(validation_rows.shape)} of {validation_rows.dtype}: features and dtypes must "
            "agree"
        )
    given = _weights(weights, train_rows)
    form = SoftmaxForm(*train, *validation, columns, given, penalty, loss)
    return Problem(
        outer=form.outer,
        inner=form.inner,
        x0=_like("x0", form.start(), x0),
        y0=_like("y0", form.zeros(form.shape), y0),
        outer_data=validation,
        inner_data=train,
        model=SoftmaxModel(form),
    )


def add_bias(rows: Any) -> Any:
    """Append a column of ones to a tensor, an array, a sparse matrix or stored rows.

    Example:
        >>> import torch, bilevel
        >>> bilevel.add_bias(torch.zeros(2, 1))
        tensor([[0., 1.],
                [0., 1.]])
    """
    if (stored := as_stored(rows)) is not None:
        return stored.map(add_bias)
    if isinstance(rows, Tensor):
        if rows.layout == torch.sparse_csr:
            return torch_csr(add_bias(scipy_csr(rows)))
        return torch.cat([rows, torch.ones_like(rows[:, :1])], dim=1)
    if scipy.sparse.issparse(rows):
        return scipy.sparse.hstack([rows, np.ones((rows.shape[0], 1), rows.dtype)], format="csr")
    return np.concatenate([rows, np.ones_like(rows[:, :1])], axis=1)


def matrix(rows: Any, name: str = "rows") -> Matrix:
    """Features as a dense or CSR tensor, or as stored rows."""
    found: Matrix = as_stored(rows)
    if found is None:
        sparse = not isinstance(rows, Tensor | np.ndarray) and scipy.sparse.issparse(rows)
        found = torch_csr(scipy.sparse.csr_array(rows)) if sparse else as_tensor(rows).detach()
    if len(found.shape) != 2 or not found.dtype.is_floating_point:
        raise ValueError(
            f"{name} features must be a floating-point matrix with one row per sample, got shape "
            f"{tuple(found.shape)} of {found.dtype}"
        )
    return found


def pair(name: str, data: tuple[Any, Any]) -> tuple[Matrix, Tensor]:
    """The features and labels of `data`, checked; the labels in memory."""
    rows, labels = rows_and_labels(name, data)
    if labels.is_floating_point() or int(labels.min()) < 0:
        raise ValueError(
            f"{name} labels must be {len(rows)} integers from 0, one per row; got shape "
            f"{tuple(labels.shape)} of {labels.dtype}, from {labels.min()}"
        )
    return rows, labels


def rows_and_labels(name: str, data: tuple[Any, Any]) -> tuple[Matrix, Tensor]:
    """The same, with arbitrary numbers as labels."""
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise TypeError(f"{name} must be a pair (features, labels), got {type(data).__name__}")
    rows, stored = matrix(data[0], name), as_stored(data[1])
    labels = as_tensor(data[1]) if stored is None else stored.all()
    labels = labels if labels.is_floating_point() else labels.long()  # torch has no uint16 minimum
    as_source(f"{name}[0]", rows)  # checks them
    if labels.shape != (len(rows),):
        raise ValueError(
            f"{name} labels must be {len(rows)} integers from 0, one per row; got shape "
            f"{tuple(labels.shape)} of {labels.dtype}, from {labels.min()}"
        )
    return rows, labels


def _like(name: str, zeros: Variables, given: Variables | None) -> Variables:
    """`given`, which must have the parts and shapes of `zeros`; its parts in their order."""
    if given is None:
        return zeros
    if _shapes(given) != _shapes(zeros):
        raise ValueError(f"{name} must have shape {_shapes(zeros)}, got {_shapes(given)}")
    return {part: given[part] for part in zeros} if isinstance(zeros, dict) else given


def _shapes(value: Variables) -> Any:
    if isinstance(value, dict):
        return {part: _shapes(item) for part, item in value.items()}
    return tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__


def _weights(weights: SigmoidWeights | Any | None, rows: Matrix) -> SigmoidWeights | Tensor | None:
    if weights is None or isinstance(weights, SigmoidWeights):
        return weights
    if not isinstance(weights, Tensor | np.ndarray | list | tuple):
        raise TypeError(f"weights must be SigmoidWeights(), numbers or None, got {quoted(weights)}")
    fixed = torch.as_tensor(weights, dtype=rows.dtype)
    if fixed.shape != (len(rows),) or not bool(((fixed >= 0) & fixed.isfinite()).all()):
        raise ValueError(
            f"weights must be {len(rows)} finite numbers of at least 0, one per training row; got "
            f"shape {tuple(fixed.shape)} with values from {fixed.min()} to {fixed.max()}"
        )
    return fixed
