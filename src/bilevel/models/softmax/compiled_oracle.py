"""Softmax regression by compiled kernels: the same closed forms, near the processor's limits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from bilevel.kernels import usable
from bilevel.models.softmax.form import SoftmaxForm
from bilevel.models.softmax.losses import CrossEntropy
from bilevel.models.softmax.oracle import SoftmaxOracle, SoftmaxPoint, of_penalty
from bilevel.numerics.large_pages import copy_of
from bilevel.oracles.plans import Contract, Descend, Found, Implicit, Retrace, Sweep, Trace
from bilevel.oracles.points import Inner, Linear, Outer, Plan
from bilevel.problem.sources import Rows
from bilevel.problem.stored.base import StoredRows

if TYPE_CHECKING:
    from bilevel.models.softmax.compiled.batches import Batches, Weights
    from bilevel.models.softmax.compiled.forms import Array
    from bilevel.models.softmax.compiled.regression import Regression

_WORTH = 200_000  # entries of X (stored ones, if it is sparse)
# Bytes of a row of W up to which kernels are faster than matrix products: for dense X four rows
# fit into the registers, for sparse X one.
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
    return fits and small and isinstance(form.loss, CrossEntropy) and entries >= _WORTH and usable()


class CompiledSoftmaxOracle(SoftmaxOracle):
    """`SoftmaxOracle` with X read once per derivative, and loops on small batches in one call.

    Equal to it up to rounding.
    """

    def __init__(self, form: SoftmaxForm, seed: int = 0) -> None:
        from bilevel.models.softmax.compiled.batches import Weights
        from bilevel.models.softmax.compiled.regression import Regression

        super().__init__(form, seed)
        self.kernels = Regression(form.train, form.train_labels, form.classes)
        self.outer_kernels = Regression(form.validation, form.validation_labels, form.classes)
        self.no_penalty = np.zeros(form.shape[0], self.kernels.dtype)
        self.equal, self._logits = Weights.equal(self.kernels.dtype), Weights.logits
        given = form.weights
        self._given = Weights.given(given.numpy()) if isinstance(given, Tensor) else self.equal

    def outer(self, x: Tensor, y: Tensor, rows: Rows = None) -> Outer:
        return _CompiledOuter(self, x, y, rows)

    def inner(self, x: Tensor, y: Tensor, rows: Rows = None) -> Inner:
        return _CompiledInner(self, x, y, rows)

    def linearize(self, x: Tensor, y: Tensor, rows: Rows = None) -> Linear:
        return _CompiledLinear(self, x, y, rows)

    def accelerate(self, plan: Plan[Any]) -> Any:
        match plan:
            case Descend():
                return self._descend(plan)
            case Trace():
                return self._trace(plan)
            case Retrace():
                return self._retrace(plan)
            case Contract():
                return self._contract(plan)
            case Implicit():
                return self._implicit(plan)
        return super().accelerate(plan)

    def _descend(self, plan: Descend) -> Tensor | None:
        x, y, steps = plan.x, plan.y, plan.steps
        rates, batches = [step.lr for step in steps], [step.rows for step in steps]
        if (loop := self.kernels.loop(batches)) is not None:
            return self.kernels.descend(y, loop, *self._weights(x, y, loop), rates)
        return self._descend_on_all(x, y, rates) if all(r is None for r in batches) else None

    def _descend_on_all(self, x: Tensor, y: Tensor, rates: Sequence[float]) -> Tensor:
        """Steps on all rows: y − α(X'R + 2c∘y) is X'(−αR) + (1 − 2αc)∘y, in one pass."""
        s, c = self._weights(x, y, self.kernels.alone(None))
        y = copy_of(y)
        for lr in rates:
            self.kernels.gradient(y, s * -lr, 1 - lr * c, None, out=y)
        return y

    def _trace(self, plan: Trace) -> Tensor | None:
        loop = self.kernels.loop([step.rows for step in plan.steps])
        if loop is None:
            return None
        rates = [step.lr for step in plan.steps]
        return self.kernels.trace(plan.y, loop, *self._weights(plan.x, plan.y, loop), rates)

    def _retrace(self, plan: Retrace) -> Sweep | None:
        x, sweep = plan.x, plan.sweep
        loop = self.kernels.loop([step.rows for step in plan.steps])
        if loop is None:
            return None
        rates, weights = [step.lr for step in plan.steps], self._weights(x, sweep.r, loop)
        r, total, across, along = self.kernels.retrace(plan.path, sweep.r, loop, *weights, rates)
        of_weights = of_penalties = None
        if self.form.weighted:
            s = x[: len(along)].sigmoid()
            of_weights = s * (1 - s) * along
        if self._fixed is None:
            of_penalties = self._of_penalties(x, across)
        crossed = self.assemble(of_weights, of_penalties)
        return Sweep(r, sweep.total + total, sweep.covector - crossed)

    def _contract(self, plan: Contract) -> tuple[Tensor, Tensor] | None:
        if (loop := self.kernels.loop(plan.batches)) is None:
            return None
        return self.kernels.contract(
            plan.y, plan.r, loop, *self._weights(plan.x, plan.y, loop), plan.lr
        )

    def _implicit(self, plan: Implicit) -> Found | None:
        x, steps, series = plan.x, plan.steps, plan.series
        batches = [*(step.rows for step in steps), *series.batches, plan.cross]
        if (chain := self.kernels.chain(batches, self.outer_kernels)) is None:
            return None
        of_weights = of_penalties = None
        if self.form.weighted:
            of_weights = torch.zeros(len(self.train), dtype=x.dtype)
        y, v = self.kernels.implicit(
            *(plan.y, chain, self._row_weights(x), self.penalties(x, plan.y)),
            *([step.lr for step in steps], self.outer_kernels, plan.outer),
            rate=series.lr,
            scale=series.scale,
            summed=series.summed,
            crossed=self.no_penalty[:0] if of_weights is None else of_weights.numpy(),
        )
        if self._fixed is None:
            of_penalties = -self._of_penalties(x, y * v)
        return Found(y, v, self.assemble(of_weights, of_penalties))

    def shares(self, x: Tensor, batches: Batches) -> Array:
        """s_i over the size of its batch, for the rows of these batches in order."""
        return batches.shares(self._row_weights(x))

    def _row_weights(self, x: Tensor) -> Weights:
        """s_i of all rows; x starts with their logits, if it holds them."""
        return self._logits(x.numpy()) if self.form.weighted else self._given

    def penalties(self, x: Tensor, y: Tensor) -> Array:
        """2c as kernels take it: a number or a row for each feature."""
        return self._laid_out(x, y) if self._fixed is None else self._fixed

    @cached_property
    def _fixed(self) -> Array | None:
        """2c, if it does not depend on x."""
        if self.form.penalty_shape is not None:
            return None
        anything = torch.empty(1)
        return self._laid_out(anything, anything.expand(self.y_size))

    def _laid_out(self, x: Tensor, y: Tensor) -> Array:
        c2 = 2 * self.coefficients(x, y.view(self.form.shape))
        if not isinstance(c2, Tensor):
            return np.full_like(self.no_penalty, c2)
        rows = c2 if len(c2) > 1 else c2.expand(self.form.shape[0], -1)  # one row: per class
        found: Array = rows.contiguous().numpy()
        return found.reshape(-1) if found.shape[-1] == 1 else found

    def _of_penalties(self, x: Tensor, wv: Tensor) -> Tensor:
        """The cross product for the penalties that x holds, where wv is W∘V."""
        WV = wv.view(self.form.shape)
        return of_penalty(torch.as_tensor(2 * self.coefficients(x, WV)), WV)

    def _weights(self, x: Tensor, y: Tensor, batches: Batches) -> tuple[Array, Array]:
        """s and 2c."""
        return self.shares(x, batches), self.penalties(x, y)


class _CompiledOuter(Outer):
    def __init__(self, oracle: CompiledSoftmaxOracle, x: Tensor, y: Tensor, rows: Rows) -> None:
        self._oracle, self._x, self._y, self._rows = oracle, x, y, rows

    def value(self) -> Tensor:
        return self._oracle.outer_kernels.losses(self._y, self._rows).mean()

    def gradient(self) -> tuple[Tensor, Tensor]:
        kernels, oracle = self._oracle.outer_kernels, self._oracle
        s = kernels.alone(self._rows).shares(oracle.equal)
        of_y = kernels.gradient(self._y, s, oracle.no_penalty, self._rows)
        return torch.zeros_like(self._x), of_y


class _CompiledInner(SoftmaxPoint):
    """For one use: X is read once, and nothing is kept."""

    _oracle: CompiledSoftmaxOracle

    @property
    def _kernels(self) -> Regression:
        return self._oracle.kernels

    @cached_property
    def _shares(self) -> Array:
        return self._oracle.shares(self._x, self._kernels.alone(self._rows))

    @cached_property
    def _laid_c(self) -> Array:
        return self._oracle.penalties(self._x, self._y)

    def _losses(self) -> Tensor:
        return self._kernels.losses(self._y, self._rows)

    def gradient(self) -> Tensor:
        return self._kernels.gradient(self._y, self._shares, self._laid_c, self._rows)

    def _of_weights(self, of_rows: Tensor) -> Tensor:
        if self._rows is None:
            return super()._of_weights(of_rows)
        logits = self._x[: self._oracle.inner_rows]
        return self._kernels.alone(self._rows).sigmoid_cross(logits, of_rows)


class _CompiledLinear(_CompiledInner):
    """For many uses: the probabilities are kept."""

    @cached_property
    def _laid(self) -> Array:
        return self._kernels.probabilities(self._y, self._rows)

    @cached_property
    def _P(self) -> Tensor:
        return torch.from_numpy(self._laid)[:, : self._oracle.form.classes]

    def gradient(self) -> Tensor:
        return self._kernels.gradient_at(
            self._laid, self._y, self._shares, self._laid_c, self._rows
        )

    def hvp(self, v: Tensor) -> Tensor:
        return self._kernels.product(self._laid, v, self._shares, self._laid_c, self._rows)[0]

    def both(self, v: Tensor) -> tuple[Tensor, Tensor]:
        hvp, slopes = self._kernels.product(self._laid, v, self._shares, self._laid_c, self._rows)
        return hvp, self._by_x(lambda: slopes, v.view_as(self._W))

    def _slopes(self, V: Tensor) -> Tensor:
        return self._kernels.slopes(self._laid, V.reshape(-1), self._rows)
