"""A linear model fitted on some rows, and the slope of its loss on others by its penalties."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from bilevel.apps.holdout import Array, accurate_newton
from bilevel.models.softmax.form import PerFeature, SoftmaxForm
from bilevel.models.softmax.losses import CrossEntropy, Loss
from bilevel.models.softmax.model import SoftmaxModel
from bilevel.models.softmax.problem import add_bias, matrix
from bilevel.solvers.linear.cg import CG, from_oracle
from bilevel.solvers.linear.inner_hessian import InnerHessian

_BIAS = -9.0  # log of its penalty: next to none
_ADJOINT = 1e-2  # of its right-hand side: the first digits of the hypergradient
_ACCURATE = 1e-6  # fits of this accuracy have a hypergradient of theirs


@dataclass(frozen=True)
class Rows:
    """Features, labels (classes or numbers) and weights."""

    features: Any
    labels: Array
    weights: Array

    def take(self, which: Array) -> Rows:
        return Rows(self.features[which], self.labels[which], self.weights[which])

    def beside(self, more: Array) -> Rows:
        """With more columns."""
        if scipy.sparse.issparse(self.features):
            both = scipy.sparse.hstack([self.features, scipy.sparse.csr_array(more)], format="csr")
        else:
            both = np.concatenate([self.features, more], axis=1)
        return Rows(both, self.labels, self.weights)


class Fit:
    """A fit on some rows, which knows how its loss on others depends on the penalties."""

    def __init__(self, train: Rows, test: Rows, columns: int, loss: Loss, accuracy: float) -> None:
        A, B = (matrix(add_bias(rows.features)) for rows in (train, test))
        labels, asked = (torch.as_tensor(rows.labels) for rows in (train, test))
        if not isinstance(loss, CrossEntropy):
            labels, asked = labels.to(A.dtype), asked.to(A.dtype)
        total = float(train.weights.sum())
        weights = torch.as_tensor(train.weights * (len(labels) / total), dtype=A.dtype)
        penalty = PerFeature(scale=1 / total)
        form = SoftmaxForm(A, labels, B, asked, columns, weights, penalty, loss)
        self._oracle, self._form = SoftmaxModel(form).oracle(None, 0), form
        self._asked = torch.as_tensor(test.weights, dtype=A.dtype)
        self._accuracy, self._y = accuracy, torch.zeros(self._oracle.y_size, dtype=A.dtype)
        self._v: Tensor | None = None

    def coefficients(self, penalties: Array) -> Array:
        """W, from the last one."""
        x, streams = self._x(penalties), self._oracle.streams(0)
        newton = accurate_newton(self._oracle, x, self._accuracy)
        self._y = newton.solve(self._oracle, x, self._y, streams).y
        return self._y.view(self._form.shape).numpy()

    def loss(self, penalties: Array) -> float:
        """The sum over the other rows."""
        W = torch.from_numpy(self.coefficients(penalties))
        scores = self._oracle.validation.push(W)
        losses = self._form.loss.of_rows(scores, self._form.validation_labels)
        return float(self._asked @ losses)

    def slope(self, penalties: Array) -> tuple[float, Array]:
        """The same, and its derivative by the penalties: −∇x∇y g v with ∇²y g v = ∇y f."""
        value, x = self.loss(penalties), self._x(penalties)
        oracle, form = self._oracle, self._form
        P = form.loss.predicted(oracle.validation.push(self._y.view(form.shape)))
        errors = form.loss.errors(P, form.validation_labels).mul_(self._asked[:, None])
        b = oracle.validation.pull(errors).reshape(-1)
        hessian = InnerHessian(oracle, x, self._y, oracle.streams(0))
        tol = self._accuracy if self._accuracy < _ACCURATE else _ADJOINT
        solver = CG(200, tol, from_oracle)
        self._v = solver.solve(hessian, b, self._v).v
        return value, -hessian.cross(self._v, None).double().numpy()

    def _x(self, penalties: Array) -> Tensor:
        return torch.as_tensor(np.append(penalties, _BIAS), dtype=self._oracle.dtype)
