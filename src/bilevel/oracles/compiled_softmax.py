"""Softmax regression by compiled kernels: the same closed forms, near what the processor can do."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from bilevel.compiled import available
from bilevel.data import Rows
from bilevel.oracles.base import Linearization, Step
from bilevel.oracles.softmax import SoftmaxLinearization, SoftmaxOracle
from bilevel.softmax import SoftmaxForm
from bilevel.stored.base import StoredRows

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
        from bilevel.compiled.regression import Regression

        super().__init__(form, seed)
        self.kernels = Regression(form.train, form.train_labels, form.classes)
        self._outer = Regression(form.validation, form.validation_labels, form.classes)
        self._no_penalty = torch.zeros(form.shape[0], 1, dtype=self.dtype)

    def outer_value(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        return self._outer.losses(y, rows).mean()

    def inner_value(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        return self._value_of(x, self._matrix(y), self.kernels.losses(y, rows), rows)

    def outer_gradient(self, x: Tensor, y: Tensor, rows: Rows = None) -> tuple[Tensor, Tensor]:
        n = self.outer_rows if rows is None else rows.numel()
        s = y.new_full((n,), 1 / n)  # type: ignore[operator, arg-type]
        return torch.zeros_like(x), self._outer.gradient(y, s, self._no_penalty, rows)

    def inner_gradient(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        return self.kernels.gradient(y, self.shares(x, [rows]), self.c2(x, y), rows)

    def inner_value_and_gradient(
        self, x: Tensor, y: Tensor, rows: Rows = None
    ) -> tuple[Tensor, Tensor]:
        return self.inner_value(x, y, rows), self.inner_gradient(x, y, rows)

    def linearize(self, x: Tensor, y: Tensor, rows: Rows = None) -> Linearization:
        return _CompiledLinearization(self, x, y, rows)

    def descend(self, x: Tensor, y: Tensor, steps: Sequence[Step]) -> Tensor:
        if all(step.rows is None for step in steps):
            return self._descend(x, y, [step.lr for step in steps])
        batches = self._small([step.rows for step in steps])
        if batches is None:
            return super().descend(x, y, steps)
        c, rates = self.c2(x, y), [step.lr for step in steps]
        return self.kernels.descend(y, batches, self.shares(x, batches), c, rates)

    def _descend(self, x: Tensor, y: Tensor, rates: Sequence[float]) -> Tensor:
        """Steps on all rows: y − α(X'R + 2c∘y) is X'(−αR) + (1 − 2αc)∘y, in one pass."""
        s, c = self.shares(x, [None]), self.c2(x, y)
        for lr in rates:
            y = self.kernels.gradient(y, s * -lr, 1 - lr * c, None)
        return y.clone() if not rates else y

    def contract(
        self, x: Tensor, y: Tensor, r: Tensor, batches: Sequence[Rows], lr: float
    ) -> tuple[Tensor, Tensor]:
        small = self._small(batches)
        if small is None:
            return super().contract(x, y, r, batches, lr)
        return self.kernels.contract(y, r, small, self.shares(x, small), self.c2(x, y), lr)

    def shares(self, x: Tensor, batches: Sequence[Rows]) -> Tensor:
        """s_i over the size of its batch, for the rows of these batches one after another."""
        rows = batches[0] if len(batches) == 1 else torch.cat(batches)  # type: ignore[arg-type]
        return self.shares_of(self.row_weights(x, rows), batches)

    def shares_of(self, weights: Tensor | None, batches: Sequence[Rows]) -> Tensor:
        """The same, where the rows' weights are known; None if all are 1."""
        sizes = [self.inner_rows if rows is None else rows.numel() for rows in batches]
        if weights is None:
            weights = torch.ones(sum(sizes), dtype=self.dtype)  # type: ignore[arg-type]
        if len(set(sizes)) == 1:
            return weights / sizes[0]  # type: ignore[operator]
        return weights / torch.tensor(sizes).repeat_interleave(torch.tensor(sizes))

    def c2(self, x: Tensor, y: Tensor) -> Tensor:
        """2c as a column, or as a matrix if it differs by class."""
        return self.as_column(2 * self.coefficients(x, self._matrix(y)))

    def as_column(self, c2: Tensor | float) -> Tensor:
        return c2 if isinstance(c2, Tensor) else self._no_penalty + c2

    def _small(self, batches: Sequence[Rows]) -> list[Tensor] | None:
        """The batches, if there are some and each is too small for more than one thread."""
        found = [rows for rows in batches if rows is not None]
        if not found or len(found) < len(batches):
            return None
        return None if self.kernels.worth_threads(max(rows.numel() for rows in found)) else found


class _CompiledLinearization(SoftmaxLinearization):
    def __init__(self, oracle: CompiledSoftmaxOracle, x: Tensor, y: Tensor, rows: Rows) -> None:
        super().__init__(oracle, x, y, rows)
        self._kernels = oracle.kernels
        self._laid = self._kernels.probabilities(y, rows)
        self._shares = oracle.shares_of(self._s, [rows])
        self._c = oracle.as_column(self._c2)

    @cached_property
    def _P(self) -> Tensor:
        return torch.from_numpy(self._laid)[:, : self._oracle.form.classes]

    def gradient(self) -> Tensor:
        y = self._W.reshape(-1)
        return self._kernels.gradient_at(self._laid, y, self._shares, self._c, self._rows)

    def hvp(self, v: Tensor) -> Tensor:
        return self._kernels.product(self._laid, v, self._shares, self._c, self._rows)[0]

    def hvp_and_cross(self, v: Tensor) -> tuple[Tensor, Tensor]:
        found = self._kernels.product(self._laid, v, self._shares, self._c, self._rows)
        return found[0], self._cross(v, lambda V: found[1])

    def _slopes(self, V: Tensor) -> Tensor:
        return self._kernels.slopes(self._laid, V.reshape(-1), self._rows)
