"""Linear models in array code: what a compiled stretch asks of them.

The verbs are in `one_column_verbs` and, for several classes, in `columns_verbs`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bilevel.kernels import usable
from bilevel.kernels.array_code import Function, Known
from bilevel.models.softmax.arrays import Data, add_ridge, ridge
from bilevel.models.softmax.form import SoftmaxForm
from bilevel.models.softmax.losses import Logistic, Squared

_SLOPES = {Logistic: 0, Squared: 1}


def in_arrays(form: SoftmaxForm) -> bool:
    """Whether its rows are dense and lie in memory, and numba can be used."""
    both = form.train, form.validation
    dense = all(isinstance(X, Tensor) and X.layout == torch.strided for X in both)
    return dense and form.train.device.type == "cpu" and usable()


def known(form: SoftmaxForm) -> Known | None:
    """The model in array code, where `in_arrays`."""
    if not in_arrays(form):
        return None
    train, outer = form.train, form.validation
    kind = _SLOPES.get(type(form.loss))
    both = form.train_labels, form.validation_labels
    X, X_outer = (X.contiguous().numpy() for X in (train, outer))
    b, b_outer = ((c.long() if kind is None else c.to(train.dtype)).numpy() for c in both)
    given = form.weights
    weights = given.contiguous().numpy() if isinstance(given, Tensor) else X[:0, 0].copy()
    logits = len(X) if form.weighted else 0
    rest = weights, logits, *_penalty(form, X.dtype)
    from bilevel.kernels.registers import padded
    from bilevel.models.softmax import columns_verbs, one_column_verbs

    sizes = padded(form.classes, X.itemsize) if kind is None else ()
    data = Data(X, b, X_outer, b_outer, kind or 0, sizes, *rest)
    found: Any = columns_verbs if kind is None else one_column_verbs
    verbs: list[Function] = [*found.VERBS, ridge, add_ridge]
    return Known(found.Kind, *verbs, partial(_own, data, found.room))  # type: ignore[call-arg]


def _own(data: Data, room: Function) -> tuple[Any, ...]:
    count = int(data.owner.max()) + 1 if len(data.owner) else 0
    return *data, np.empty(count, data.X.dtype), *room(data)


def _penalty(form: SoftmaxForm, dtype: Any) -> tuple[Any, Any]:
    """2c where e^x is 1, and whose each weight's is."""
    shape, W = form.penalty_shape, torch.empty(form.shape, dtype=torch.float64)
    if shape is None:
        return np.array([2 * form.penalty.coefficients(None, W)], dtype), np.empty(0, np.int64)
    count = torch.Size(shape).numel()
    # Penalties are made of e^x alone: with x the logarithm of 1, 2, ... they name their owners.
    named = torch.arange(1, count + 1, dtype=torch.float64).log().reshape(shape)
    one = torch.as_tensor(form.penalty.coefficients(torch.zeros(shape).double(), W)).flatten()[0]
    owner = form.penalty.coefficients(named, W) / one
    found = owner.expand(form.shape).reshape(-1).round().long().numpy() - 1
    return np.array([2 * float(one)], dtype), found
