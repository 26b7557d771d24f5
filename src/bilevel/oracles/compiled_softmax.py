"""Softmax regression by compiled kernels: the same closed forms, near what the processor can do."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from bilevel.compiled import available
from bilevel.data import Rows
from bilevel.oracles.base import Linearization, Step, Sweep
from bilevel.oracles.softmax import SoftmaxLinearization, SoftmaxOracle, of_penalty
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
        rates, batches = [step.lr for step in steps], [step.rows for step in steps]
        if self._in_one_call(batches):
            s, c = self.shares(x, batches), self.c2(x, y)
            return self.kernels.descend(y, batches, s, c, rates)
        if all(rows is None for rows in batches):
            return self._descend(x, y, rates)
        return super().descend(x, y, steps)

    def _descend(self, x: Tensor, y: Tensor, rates: Sequence[float]) -> Tensor:
        """Steps on all rows: y − α(X'R + 2c∘y) is X'(−αR) + (1 − 2αc)∘y, in one pass."""
        s, c = self.shares(x, [None]), self.c2(x, y)
        y = y.clone()
        for lr in rates:
            self.kernels.gradient(y, s * -lr, 1 - lr * c, None, out=y)
        return y

    def trace(self, x: Tensor, y: Tensor, steps: Sequence[Step]) -> Tensor:
        batches = [step.rows for step in steps]
        if not self._in_one_call(batches):
            return super().trace(x, y, steps)
        s, c = self.shares(x, batches), self.c2(x, y)
        return self.kernels.trace(y, batches, s, c, [step.lr for step in steps])

    def retrace(self, x: Tensor, path: Tensor, steps: Sequence[Step], sweep: Sweep) -> Sweep:
        batches = [step.rows for step in steps]
        if not self._in_one_call(batches):
            return super().retrace(x, path, steps, sweep)
        s, c = self.shares(x, batches), self.c2(x, sweep.r)
        rates = [step.lr for step in steps]
        r, total, across, along = self.kernels.retrace(path, sweep.r, batches, s, c, rates)
        of_weights = of_penalties = None
        if self.form.weighted:
            weights = x[: len(along)].sigmoid()
            of_weights = weights * (1 - weights) * along
        if isinstance(c2 := 2 * self.coefficients(x, self._matrix(r)), Tensor):
            of_penalties = of_penalty(c2, self._matrix(across))
        crossed = self.assemble(of_weights, of_penalties, None)
        return Sweep(r, sweep.total + total, sweep.covector - crossed)

    def contract(
        self, x: Tensor, y: Tensor, r: Tensor, batches: Sequence[Rows], lr: float
    ) -> tuple[Tensor, Tensor]:
        if not self._in_one_call(batches):
            return super().contract(x, y, r, batches, lr)
        return self.kernels.contract(y, r, batches, self.shares(x, batches), self.c2(x, y), lr)

    def shares(self, x: Tensor, batches: Sequence[Rows]) -> Tensor:
        """s_i over the size of its batch, for the rows of these batches one after another.

        Batches of all rows are the same rows.
        """
        if batches[0] is None or len(batches) == 1:
            return self.shares_of(self.row_weights(x, batches[0]), batches[:1])
        rows = torch.cat(batches)  # type: ignore[arg-type]
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

    def _in_one_call(self, batches: Sequence[Rows]) -> bool:
        """Whether there is a kernel for the whole loop."""
        alike = len({rows is None for rows in batches}) == 1
        return alike and self.kernels.has_loops(batches)


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
