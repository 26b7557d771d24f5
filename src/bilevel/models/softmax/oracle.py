"""Softmax regression in closed form: two matrix products a derivative, and no graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional

from bilevel.models.softmax.design import Design, design
from bilevel.models.softmax.form import SoftmaxForm
from bilevel.oracles.base import Linearization, Oracle
from bilevel.problem.sources import Rows


class SoftmaxOracle(Oracle):
    """The derivatives of `SoftmaxForm`, equal to autograd's up to rounding.

    With P = softmax(XW), Y the one-hot labels, s the row weights over the batch size and c the
    penalty's coefficients:

        ∇W g = X'[s∘(P − Y)] + 2c∘W
        ∇²W g·V = X'[s∘(P∘U − P∘rowsum(P∘U))] + 2c∘V,   U = XV
        ∇x∇W g·V = s'∘rowsum((P − Y)∘U) for the weights, 2c∘W∘V (summed over classes if c is
                   per feature) for the penalties, because c is an exponential
    """

    def __init__(self, form: SoftmaxForm, seed: int = 0) -> None:
        self.form, self.seed = form, seed
        self.train, self._validation = design(form.train), design(form.validation)
        self.inner_rows, self.outer_rows = len(self.train), len(self._validation)
        self.y_size = form.shape[0] * form.shape[1]
        self._weights_size = self.inner_rows if form.weighted else 0
        penalties = form.penalty_shape
        self._penalties_size = 0 if penalties is None else torch.Size(penalties).numel()
        self.x_size = self._weights_size + self._penalties_size
        self.shared_batch = self.chunk = None
        self.dtype, self.device = form.train.dtype, form.train.device

    def outer_value(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        Z = self._validation.take(rows).push(self._matrix(y))
        return functional.cross_entropy(Z, _take(self.form.validation_labels, rows))

    def outer_gradient(self, x: Tensor, y: Tensor, rows: Rows = None) -> tuple[Tensor, Tensor]:
        X = self._validation.take(rows)
        labels = _take(self.form.validation_labels, rows)
        errors = _errors(X.push(self._matrix(y)).softmax(1), labels)
        return torch.zeros_like(x), X.pull(errors / len(X)).reshape(-1)

    def inner_value(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        W = self._matrix(y)
        return self._value(x, W, self.train.take(rows).push(W), rows)

    def inner_gradient(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        W, X = self._matrix(y), self.train.take(rows)
        return self._gradient(x, W, X, X.push(W), rows)

    def inner_value_and_gradient(
        self, x: Tensor, y: Tensor, rows: Rows = None
    ) -> tuple[Tensor, Tensor]:
        W, X = self._matrix(y), self.train.take(rows)
        Z = X.push(W)
        return self._value(x, W, Z, rows), self._gradient(x, W, X, Z, rows)

    def linearize(self, x: Tensor, y: Tensor, rows: Rows = None) -> Linearization:
        return SoftmaxLinearization(self, x, y, rows)

    def pull(self, x: Tensor, covector: Tensor, rows: Rows = None) -> Tensor:
        return covector

    def start(self, x: Tensor, y: Tensor) -> Tensor:
        return y

    def pull_start(self, x: Tensor, r: Tensor, rows: Rows = None) -> Tensor:
        return torch.zeros_like(x)

    def labels(self, rows: Rows) -> Tensor:
        return _take(self.form.train_labels, rows)

    def row_weights(self, x: Tensor, rows: Rows) -> Tensor | None:
        """s_i of these rows, before division by the batch size; None if all are 1."""
        if self.form.weighted:
            return _take(x[: self._weights_size], rows).sigmoid()
        fixed = self.form.weights
        return _take(fixed, rows) if isinstance(fixed, Tensor) else None

    def coefficients(self, x: Tensor, W: Tensor) -> Tensor | float:
        """c, that W∘W is multiplied with."""
        shape = self.form.penalty_shape
        part = None if shape is None else x[self._weights_size :].view(shape)
        return self.form.penalty.coefficients(part, W)

    def assemble(self, of_weights: Tensor | None, of_penalties: Tensor | None) -> Tensor:
        """A vector of x from its parts."""
        parts = []
        if of_weights is not None:
            parts.append(of_weights)
        if of_penalties is not None:
            parts.append(of_penalties.reshape(-1))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _matrix(self, y: Tensor) -> Tensor:
        return y.view(self.form.shape)

    def _value(self, x: Tensor, W: Tensor, Z: Tensor, rows: Rows) -> Tensor:
        losses = functional.cross_entropy(Z, self.labels(rows), reduction="none")
        return self._value_of(x, W, losses, rows)

    def _value_of(self, x: Tensor, W: Tensor, losses: Tensor, rows: Rows) -> Tensor:
        s = self.row_weights(x, rows)
        data = losses.mean() if s is None else (s @ losses) / len(losses)
        return data + (self.coefficients(x, W) * W.square()).sum()

    def _gradient(self, x: Tensor, W: Tensor, X: Design, Z: Tensor, rows: Rows) -> Tensor:
        errors = _weigh(_errors(Z.softmax(1), self.labels(rows)), self.row_weights(x, rows))
        return X.pull(errors).add_(2 * self.coefficients(x, W) * W).reshape(-1)


class SoftmaxLinearization(Linearization):
    """That of `SoftmaxOracle`."""

    def __init__(self, oracle: SoftmaxOracle, x: Tensor, y: Tensor, rows: Rows) -> None:
        self._oracle, self._x, self._y, self._rows = oracle, x, y, rows
        self._W = y.view(oracle.form.shape)

    @cached_property
    def _s(self) -> Tensor | None:
        return self._oracle.row_weights(self._x, self._rows)

    @cached_property
    def _c2(self) -> Tensor | float:
        return 2 * self._oracle.coefficients(self._x, self._W)

    @cached_property
    def _X(self) -> Design:
        return self._oracle.train.take(self._rows)

    @cached_property
    def _P(self) -> Tensor:
        return self._X.push(self._W).softmax(1)

    def gradient(self) -> Tensor:
        errors = _errors(self._P.clone(), self._oracle.labels(self._rows))
        return self._X.pull(_weigh(errors, self._s)).add_(self._c2 * self._W).reshape(-1)

    def hvp(self, v: Tensor) -> Tensor:
        V = v.view_as(self._W)
        PU = self._P * self._X.push(V)
        T = PU.addcmul_(self._P, PU.sum(1, keepdim=True), value=-1)
        return self._X.pull(_weigh(T, self._s)).add_(self._c2 * V).reshape(-1)

    def cross(self, v: Tensor) -> Tensor:
        return self._cross(v, self._slopes)

    def _cross(self, v: Tensor, slopes: Callable[[Tensor], Tensor]) -> Tensor:
        V = v.view_as(self._W)
        of_weights = of_penalties = None
        if self._oracle.form.weighted:
            of_weights = self._of_weights(slopes(V))
        if isinstance(self._c2, Tensor):
            of_penalties = of_penalty(self._c2, self._W * V)
        return self._oracle.assemble(of_weights, of_penalties)

    def _of_weights(self, slopes: Tensor) -> Tensor:
        """∂s_i/∂x_i times the slopes of the batch's rows over their number, where each belongs."""
        s, rows = self._s, self._rows
        assert s is not None
        values = s * (1 - s) * slopes / len(s)
        if rows is None:
            return values
        return values.new_zeros(len(self._oracle.train)).index_add_(0, rows, values)

    def diagonal(self) -> Tensor:
        T = _weigh(self._P * (1 - self._P), self._s)
        return self._X.pull_squared(T).add_(self._c2).reshape(-1)

    def approximate_inverse(self) -> Callable[[Tensor], Tensor]:
        """Böhning's view: the Hessian is nearly the same Gram matrix for every class.

        M_k = w X'X/n + diag(2c_k), with w the mean of s_i P_ik (1 − P_ik), is factorised once;
        for many features, or penalties that differ by class, only its diagonal is used.
        """
        gram = self._X.gram()
        if gram is None or (isinstance(self._c2, Tensor) and self._c2.shape[1] > 1):
            return self._inverse_diagonal()
        spread = self._P * (1 - self._P)
        w = spread.mean() if self._s is None else (self._s @ spread).mean() / len(spread)
        penalties = torch.as_tensor(self._c2, dtype=gram.dtype).expand(len(gram), 1)[:, 0]
        factor, failed = torch.linalg.cholesky_ex(gram * w + torch.diag(penalties))
        if failed:  # penalties below rounding, or values that are not finite
            return self._inverse_diagonal()
        return lambda v: torch.cholesky_solve(v.view_as(self._W), factor).reshape(-1)

    def _inverse_diagonal(self) -> Callable[[Tensor], Tensor]:
        diagonal = self.diagonal()
        return lambda v: v / diagonal

    def _slopes(self, V: Tensor) -> Tensor:
        """How the loss of each row changes along V."""
        U, labels = self._X.push(V), self._oracle.labels(self._rows)
        return (self._P * U).sum(1) - U.gather(1, labels[:, None])[:, 0]


def of_penalty(c2: Tensor, WV: Tensor) -> Tensor:
    """2c∘W∘V, summed over classes if c is per feature."""
    return c2 * (WV.sum(1, keepdim=True) if c2.shape[1] == 1 else WV)


def _take(values: Tensor, rows: Rows) -> Tensor:
    return values if rows is None else values[rows]


def _errors(P: Tensor, labels: Tensor) -> Tensor:
    """P − Y, in place."""
    return P.scatter_add_(1, labels[:, None], P.new_full((len(P), 1), -1.0))


def _weigh(R: Tensor, s: Tensor | None) -> Tensor:
    """s∘R over the batch size, in place."""
    return R.div_(len(R)) if s is None else R.mul_((s / len(R))[:, None])
