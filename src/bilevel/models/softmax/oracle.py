"""Softmax regression in closed form: two matrix products per derivative, and no graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from bilevel.kernels.array_code import Known
from bilevel.models.softmax.design import Design, design
from bilevel.models.softmax.form import SoftmaxForm
from bilevel.models.softmax.verbs import known
from bilevel.oracles.points import Inner, Linear, Oracle, Outer, Plan, RidgeTerm
from bilevel.oracles.stretches import Stretch
from bilevel.problem.sources import Rows


class SoftmaxOracle(Oracle):
    """The derivatives of `SoftmaxForm`, equal to autograd's up to rounding.

    With P = softmax(XW), Y the one-hot labels, ℓ the rows' losses, s the row weights over the
    batch size and c the penalty's coefficients:

        ∇W g = X'[s∘(P − Y)] + 2c∘W
        ∇x g = s'∘ℓ for the weights, c∘W∘W (summed over classes if c is per feature) for the
               penalties, because c is an exponential
        ∇²W g·V = X'[s∘(P∘U − P∘rowsum(P∘U))] + 2c∘V,   U = XV
        ∇x∇W g·V = s'∘rowsum((P − Y)∘U) for the weights, 2c∘W∘V for the penalties
    """

    def __init__(self, form: SoftmaxForm, seed: int = 0) -> None:
        self.form, self.seed = form, seed
        self.train, self.validation = design(form.train), design(form.validation)
        self.inner_rows, self.outer_rows = len(self.train), len(self.validation)
        self.y_size = form.shape[0] * form.shape[1]
        self.weights_size = self.inner_rows if form.weighted else 0
        penalties = form.penalty_shape
        self.x_size = self.weights_size
        self.x_size += 0 if penalties is None else torch.Size(penalties).numel()
        self.dtype, self.device = form.train.dtype, form.train.device

    def outer(self, x: Tensor, y: Tensor, rows: Rows = None) -> Outer:
        return _SoftmaxOuter(self, x, y, rows)

    def inner(self, x: Tensor, y: Tensor, rows: Rows = None) -> Inner:
        return SoftmaxPoint(self, x, y, rows)

    def linearize(self, x: Tensor, y: Tensor, rows: Rows = None) -> Linear:
        return SoftmaxPoint(self, x, y, rows)

    def accelerate(self, plan: Plan[Any]) -> Any:
        if isinstance(plan, Stretch) and self._known is not None:
            return plan.compiled(self._known)
        return None

    @cached_property
    def _known(self) -> Known | None:
        return known(self.form)

    def row_weights(self, x: Tensor, rows: Rows) -> Tensor | None:
        """s_i of these rows, before division by the batch size; None if all are 1."""
        if self.form.weighted:
            return take(x[: self.weights_size], rows).sigmoid()
        fixed = self.form.weights
        return take(fixed, rows) if isinstance(fixed, Tensor) else None

    def coefficients(self, x: Tensor, W: Tensor) -> Tensor | float:
        """c, the factors of W∘W."""
        shape = self.form.penalty_shape
        part = None if shape is None else x[self.weights_size :].view(shape)
        return self.form.penalty.coefficients(part, W)

    def ridge(self, x: Tensor) -> RidgeTerm:
        shape, penalty = self.form.shape, self.form.penalty_shape
        c2 = 2 * torch.as_tensor(self.coefficients(x, x.new_empty(()).expand(shape)), dtype=x.dtype)

        def of_x(u: Tensor) -> Tensor:
            found = torch.zeros_like(x)
            if penalty is not None:
                found[self.weights_size :] = u.view(shape).sum_to_size(c2.shape).reshape(-1)
            return found

        return RidgeTerm(c2.expand(shape).reshape(-1), of_x)

    def assemble(self, of_weights: Tensor | None, of_penalties: Tensor | None) -> Tensor:
        """A vector of x from its parts."""
        parts = [p.reshape(-1) for p in (of_weights, of_penalties) if p is not None]
        return parts[0] if len(parts) == 1 else torch.cat(parts)


class _SoftmaxOuter(Outer):
    def __init__(self, oracle: SoftmaxOracle, x: Tensor, y: Tensor, rows: Rows) -> None:
        self._x, self._X, self._loss = x, oracle.validation.take(rows), oracle.form.loss
        self._labels = take(oracle.form.validation_labels, rows)
        self._W = y.view(oracle.form.shape)

    def value(self) -> Tensor:
        return self._loss.mean(self._X.push(self._W), self._labels)

    def gradient(self) -> tuple[Tensor, Tensor]:
        P = self._loss.predicted(self._X.push(self._W))
        errors = self._loss.errors(P, self._labels)
        return torch.zeros_like(self._x), self._X.pull(errors / len(self._X)).reshape(-1)


class SoftmaxPoint(Linear):
    """g at a point, for one use or for many: intermediate results are kept."""

    def __init__(self, oracle: SoftmaxOracle, x: Tensor, y: Tensor, rows: Rows) -> None:
        self._oracle, self._x, self._y, self._rows = oracle, x, y, rows
        self._W, self._loss = y.view(oracle.form.shape), oracle.form.loss

    @cached_property
    def _s(self) -> Tensor | None:
        return self._oracle.row_weights(self._x, self._rows)

    @cached_property
    def _c(self) -> Tensor | float:
        return self._oracle.coefficients(self._x, self._W)

    @cached_property
    def _c2(self) -> Tensor | float:
        return 2 * self._c

    @property
    def _labels(self) -> Tensor:
        return take(self._oracle.form.train_labels, self._rows)

    @cached_property
    def _X(self) -> Design:
        return self._oracle.train.take(self._rows)

    @cached_property
    def _Z(self) -> Tensor:
        return self._X.push(self._W)

    @cached_property
    def _P(self) -> Tensor:
        return self._loss.predicted(self._Z)

    def _losses(self) -> Tensor:
        """ℓ, one per row."""
        return self._loss.of_rows(self._Z, self._labels)

    def value(self) -> Tensor:
        losses, s = self._losses(), self._s
        data = losses.mean() if s is None else (s @ losses) / len(losses)
        return data + (self._c * self._W.square()).sum()

    def gradient(self) -> Tensor:
        errors = self._loss.errors(self._P.clone(), self._labels)
        return self._X.pull(_weigh(errors, self._s)).add_(self._c2 * self._W).reshape(-1)

    def gradient_x(self) -> Tensor:
        # ℓ takes the place of the slopes, and W that of V/2.
        return self._by_x(self._losses, self._W / 2)

    def hvp(self, v: Tensor) -> Tensor:
        V = v.view_as(self._W)
        T = self._loss.spread(self._P, self._X.push(V))
        return self._X.pull(_weigh(T, self._s)).add_(self._c2 * V).reshape(-1)

    def cross(self, v: Tensor) -> Tensor:
        V = v.view_as(self._W)
        return self._by_x(lambda: self._slopes(V), V)

    def _by_x(self, of_rows: Callable[[], Tensor], V: Tensor) -> Tensor:
        """s'∘(one number per row) for the weights, 2c∘W∘V for the penalties."""
        of_weights = of_penalties = None
        if self._oracle.form.weighted:
            of_weights = self._of_weights(of_rows())
        if isinstance(self._c2, Tensor):
            of_penalties = of_penalty(self._c2, self._W * V)
        return self._oracle.assemble(of_weights, of_penalties)

    def _of_weights(self, of_rows: Tensor) -> Tensor:
        """∂s_i/∂x_i times one number per row over the batch size, each at its row's place."""
        s, rows = self._s, self._rows
        assert s is not None
        values = s * (1 - s) * of_rows / len(s)
        if rows is None:
            return values
        return values.new_zeros(len(self._oracle.train)).index_add_(0, rows, values)

    def _slopes(self, V: Tensor) -> Tensor:
        """How the loss of each row changes along V."""
        return self._loss.along(self._P, self._labels, self._X.push(V))

    def matrix(self) -> Tensor | None:
        """By matrix products, class by class: ∂²ℓ/∂Z² of each row, with X_i X_i' for a weight."""
        p, C = self._W.shape
        H = self._W.new_empty(p, C, p, C)
        for k in range(C):
            unit = torch.zeros_like(self._P)
            unit[:, k] = 1
            grams = self._X.grams(_weigh(self._loss.spread(self._P, unit), self._s))
            if grams is None:
                return None
            H[:, k] = grams.transpose(1, 2)
        H = H.view(p * C, p * C)
        H.diagonal().add_((self._c2 * torch.ones_like(self._W)).reshape(-1))
        return H

    def diagonal(self) -> Tensor:
        T = _weigh(self._loss.diagonal(self._P), self._s)
        return self._X.pull_squared(T).add_(self._c2).reshape(-1)

    def sketch(self) -> Tensor:
        """Böhning's view: the Hessian is nearly the same Gram matrix for every class.

        M_k = w X'X/n + diag(2c_k), with w the mean of s_i P_ik (1 − P_ik), is factorised once;
        for many features, or penalties that differ by class, only its diagonal is used.
        """
        gram = self._X.gram()
        if gram is None or self._c_by_class:
            return self.diagonal()
        spread = self._loss.diagonal(self._P)
        w = spread.mean() if self._s is None else (self._s @ spread).mean() / len(spread)
        return torch.cat([w.reshape(1), gram.reshape(-1)])

    def inverse_from(self, sketch: Tensor) -> Callable[[Tensor], Tensor] | None:
        features = len(self._W)
        # The diagonal has an entry for each class; with one feature and two classes both have two.
        if self._c_by_class or self._X.gram() is None:
            return lambda v: v / sketch
        w, gram = sketch[0], sketch[1:].view(features, features)
        penalties = torch.as_tensor(self._c2, dtype=gram.dtype).expand(features, 1)[:, 0]
        factor, failed = torch.linalg.cholesky_ex(gram * w + torch.diag(penalties))
        if failed:  # penalties below rounding, or non-finite values
            return None
        return lambda v: torch.cholesky_solve(v.view_as(self._W), factor).reshape(-1)

    @property
    def _c_by_class(self) -> bool:
        return isinstance(self._c2, Tensor) and self._c2.shape[1] > 1


def of_penalty(c2: Tensor, WV: Tensor) -> Tensor:
    """2c∘W∘V, summed over classes if c is per feature, and over features if it is per class."""
    return c2 * WV.sum_to_size(c2.shape)


def take(values: Tensor, rows: Rows) -> Tensor:
    return values if rows is None else values[rows]


def _weigh(R: Tensor, s: Tensor | None) -> Tensor:
    """s∘R over the batch size, in place."""
    return R.div_(len(R)) if s is None else R.mul_((s / len(R))[:, None])
