"""Softmax regression by compiled kernels: the same closed forms, near what the processor can do."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from bilevel.kernels import available
from bilevel.models.softmax.form import SoftmaxForm
from bilevel.models.softmax.oracle import SoftmaxLinearization, SoftmaxOracle, of_penalty
from bilevel.numerics.large_pages import copy_of
from bilevel.oracles.base import Batched, Implicit, Linearization, Step, Sweep
from bilevel.problem.sources import Rows
from bilevel.problem.stored.base import StoredRows

if TYPE_CHECKING:
    from bilevel.models.softmax.compiled.batches import Batches, Weights
    from bilevel.models.softmax.compiled.forms import Array
    from bilevel.models.softmax.compiled.regression import Regression

_WORTH = 200_000  # entries of X (of a sparse one, those that are stored)
# Bytes of a row of W up to which kernels are faster than matrix products: four of them fit into
# the registers, for dense X, and one does for sparse X.
_DENSE_ROW, _SPARSE_ROW = 96, 256
_DTYPES = (torch.float32, torch.float64)


def worth_compiling(form: SoftmaxForm) -> bool:
    """Whether there are kernels for a problem, and enough work for them."""
    X = form.train
    if isinstance(X, StoredRows) or isinstance(form.validation, StoredRows):
        return False
    sparse = X.is_sparse_csr
    entries, most = (X._nnz(), _SPARSE_ROW) if sparse else (X.numel(), _DENSE_ROW)
    fits = X.dtype in _DTYPES and X.device.type == "cpu"
    small = form.classes * X.dtype.itemsize <= most
    return fits and small and entries >= _WORTH and available()


class CompiledSoftmaxOracle(SoftmaxOracle):
    """`SoftmaxOracle` with X read once a derivative, and whole loops on small batches in one call.

    Equal to it up to rounding.
    """

    def __init__(self, form: SoftmaxForm, seed: int = 0) -> None:
        from bilevel.models.softmax.compiled.batches import Weights
        from bilevel.models.softmax.compiled.regression import Regression

        super().__init__(form, seed)
        self.kernels = Regression(form.train, form.train_labels, form.classes)
        self._outer = Regression(form.validation, form.validation_labels, form.classes)
        self._no_penalty = np.zeros(form.shape[0], self.kernels.dtype)
        self._equal, self._logits = Weights.equal(self.kernels.dtype), Weights.logits
        given = form.weights
        self._given = Weights.given(given.numpy()) if isinstance(given, Tensor) else self._equal

    def outer_value(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        return self._outer.losses(y, rows).mean()

    def inner_value(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        return self._value_of(x, self._matrix(y), self.kernels.losses(y, rows), rows)

    def outer_gradient(self, x: Tensor, y: Tensor, rows: Rows = None) -> tuple[Tensor, Tensor]:
        s = self._outer.alone(rows).shares(self._equal)
        return torch.zeros_like(x), self._outer.gradient(y, s, self._no_penalty, rows)

    def inner_gradient(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        s = self.shares(x, self.kernels.alone(rows))
        return self.kernels.gradient(y, s, self.penalties(x, y), rows)

    def inner_value_and_gradient(
        self, x: Tensor, y: Tensor, rows: Rows = None
    ) -> tuple[Tensor, Tensor]:
        return self.inner_value(x, y, rows), self.inner_gradient(x, y, rows)

    def linearize(self, x: Tensor, y: Tensor, rows: Rows = None) -> Linearization:
        return _CompiledLinearization(self, x, y, rows)

    def descend(self, x: Tensor, y: Tensor, steps: Sequence[Step]) -> Tensor:
        rates, batches = [step.lr for step in steps], [step.rows for step in steps]
        if (loop := self.kernels.loop(batches)) is not None:
            return self.kernels.descend(y, loop, *self._weights(x, y, loop), rates)
        if all(rows is None for rows in batches):
            return self._descend(x, y, rates)
        return super().descend(x, y, steps)

    def _descend(self, x: Tensor, y: Tensor, rates: Sequence[float]) -> Tensor:
        """Steps on all rows: y − α(X'R + 2c∘y) is X'(−αR) + (1 − 2αc)∘y, in one pass."""
        s, c = self._weights(x, y, self.kernels.alone(None))
        y = copy_of(y)
        for lr in rates:
            self.kernels.gradient(y, s * -lr, 1 - lr * c, None, out=y)
        return y

    def trace(self, x: Tensor, y: Tensor, steps: Sequence[Step]) -> Tensor:
        loop = self.kernels.loop([step.rows for step in steps])
        if loop is None:
            return super().trace(x, y, steps)
        rates = [step.lr for step in steps]
        return self.kernels.trace(y, loop, *self._weights(x, y, loop), rates)

    def retrace(self, x: Tensor, path: Tensor, steps: Sequence[Step], sweep: Sweep) -> Sweep:
        loop = self.kernels.loop([step.rows for step in steps])
        if loop is None:
            return super().retrace(x, path, steps, sweep)
        rates, weights = [step.lr for step in steps], self._weights(x, sweep.r, loop)
        r, total, across, along = self.kernels.retrace(path, sweep.r, loop, *weights, rates)
        of_weights = of_penalties = None
        if self.form.weighted:
            s = x[: len(along)].sigmoid()
            of_weights = s * (1 - s) * along
        if self._fixed is None:
            of_penalties = self._of_penalties(x, self._matrix(across))
        crossed = self.assemble(of_weights, of_penalties)
        return Sweep(r, sweep.total + total, sweep.covector - crossed)

    def contract(
        self, x: Tensor, y: Tensor, r: Tensor, batches: Sequence[Rows], lr: float
    ) -> tuple[Tensor, Tensor]:
        if (loop := self.kernels.loop(batches)) is None:
            return super().contract(x, y, r, batches, lr)
        return self.kernels.contract(y, r, loop, *self._weights(x, y, loop), lr)

    def implicit(self, x: Tensor, y: Tensor, drawn: Batched) -> Implicit:
        steps, series = drawn.steps, drawn.series
        batches = [*(step.rows for step in steps), *series.batches, drawn.cross]
        if (chain := self.kernels.chain(batches, self._outer)) is None:
            return super().implicit(x, y, drawn)
        of_weights = of_penalties = None
        if self.form.weighted:
            of_weights = torch.zeros(len(self.train), dtype=x.dtype)
        y, v = self.kernels.implicit(
            *(y, chain, self.row_weights_of(x), self.penalties(x, y)),
            *([step.lr for step in steps], self._outer, drawn.outer),
            rate=series.lr,
            scale=series.scale,
            summed=series.summed,
            crossed=self._no_penalty[:0] if of_weights is None else of_weights.numpy(),
        )
        if self._fixed is None:
            of_penalties = -self._of_penalties(x, self._matrix(y) * self._matrix(v))
        return Implicit(y, v, self.assemble(of_weights, of_penalties))

    def shares(self, x: Tensor, batches: Batches) -> Array:
        """s_i over the size of its batch, for the rows of these batches one after another."""
        return batches.shares(self.row_weights_of(x))

    def row_weights_of(self, x: Tensor) -> Weights:
        """s_i of all rows; x begins with their logits, if it holds them."""
        return self._logits(x.numpy()) if self.form.weighted else self._given

    def penalties(self, x: Tensor, y: Tensor) -> Array:
        """2c as kernels take it: a number a feature, or a row a feature."""
        return self._laid_out(x, y) if self._fixed is None else self._fixed

    @cached_property
    def _fixed(self) -> Array | None:
        """2c, if it does not depend on x."""
        if self.form.penalty_shape is not None:
            return None
        anything = torch.empty(1)
        return self._laid_out(anything, anything.expand(self.y_size))

    def _laid_out(self, x: Tensor, y: Tensor) -> Array:
        c2 = 2 * self.coefficients(x, self._matrix(y))
        found: Array = c2.numpy() if isinstance(c2, Tensor) else np.full_like(self._no_penalty, c2)
        return found.reshape(-1) if found.shape[-1] == 1 else found

    def _of_penalties(self, x: Tensor, WV: Tensor) -> Tensor:
        """The cross product by the penalties that x holds, where WV = W∘V."""
        return of_penalty(torch.as_tensor(2 * self.coefficients(x, WV)), WV)

    def _weights(self, x: Tensor, y: Tensor, batches: Batches) -> tuple[Array, Array]:
        """s and 2c."""
        return self.shares(x, batches), self.penalties(x, y)


class _CompiledLinearization(SoftmaxLinearization):
    _oracle: CompiledSoftmaxOracle

    @property
    def _kernels(self) -> Regression:
        return self._oracle.kernels

    @cached_property
    def _laid(self) -> Array:
        return self._kernels.probabilities(self._y, self._rows)

    @cached_property
    def _shares(self) -> Array:
        return self._oracle.shares(self._x, self._kernels.alone(self._rows))

    @cached_property
    def _c(self) -> Array:
        return self._oracle.penalties(self._x, self._y)

    @cached_property
    def _P(self) -> Tensor:
        return torch.from_numpy(self._laid)[:, : self._oracle.form.classes]

    def gradient(self) -> Tensor:
        return self._kernels.gradient_at(self._laid, self._y, self._shares, self._c, self._rows)

    def hvp(self, v: Tensor) -> Tensor:
        return self._kernels.product(self._laid, v, self._shares, self._c, self._rows)[0]

    def hvp_and_cross(self, v: Tensor) -> tuple[Tensor, Tensor]:
        found = self._kernels.product(self._laid, v, self._shares, self._c, self._rows)
        return found[0], self._cross(v, lambda V: found[1])

    def _of_weights(self, slopes: Tensor) -> Tensor:
        if self._rows is None:
            return super()._of_weights(slopes)
        return self._kernels.alone(self._rows).sigmoid_cross(
            self._x[: self._oracle.inner_rows], slopes
        )

    def _slopes(self, V: Tensor) -> Tensor:
        return self._kernels.slopes(self._laid, V.reshape(-1), self._rows)
