"""Softmax regression on the rows of one matrix: tensors outside, kernels inside."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from bilevel.kernels import lazy
from bilevel.kernels.registers import close, padded
from bilevel.models.softmax.compiled.batches import Batches, Weights
from bilevel.models.softmax.compiled.by_feature import ByFeature
from bilevel.models.softmax.compiled.forms import Array, Form, csr, fastest
from bilevel.models.softmax.compiled.on_rows import OnRows, columns
from bilevel.problem.sources import Rows, scipy_csr

_IN_CACHE = 2**18  # bytes of W up to which every thread can have its own derivative
_ITSELF = (-1.0,)  # the rate at which a step from 0 W gives the derivative itself


class Regression:
    """Its derivatives in W; see `bilevel.kernels.softmax` for the formulas.

    W, V and the results are flat tensors of (p, C). `s` holds the weights of the rows, over
    the batch size, and c twice the penalty's coefficients, (p,) or (p, C). Probabilities P stay as
    the kernels lay them out.

    If X is sparse with many features it is `wide`: then derivatives on all rows go feature by
    feature with X', and loops on small batches shrink a feature when they next read it.
    """

    def __init__(self, X: Tensor, labels: Tensor, classes: int) -> None:
        self._X: Form = csr(scipy_csr(X)) if X.is_sparse_csr else fastest(X.numpy())
        self._labels, self._all = labels.numpy(), np.arange(len(labels))
        self._shape = (X.shape[1], classes)
        size = X.shape[1] * classes * X.dtype.itemsize
        sparse = isinstance(self._X, tuple) and not len(self._X[3])
        self._wide = sparse and size > _IN_CACHE
        self._sizes = close(classes) if self._wide else padded(classes, X.dtype.itemsize)
        self.dtype = torch.empty(0, dtype=X.dtype).numpy().dtype
        self._on = OnRows(self._X, self._labels, X.shape[1], self._sizes, self.dtype)

    def gradient(
        self, W: Tensor, s: Array, c: Array, rows: Rows, out: Tensor | None = None
    ) -> Tensor:
        """Σ_t s_t X_t'(P_t − Y_t) + c∘W; written to `out`, which may be W."""
        if self._wide and rows is None:
            return self._by_feature.gradient(self.probabilities(W, None), W, s, c, out)
        found = _flat(self._on.step(self._matrix(W), self.alone(rows), s, c, 0, _ITSELF))
        return found if out is None else out.copy_(found)

    def gradient_at(self, P: Array, W: Tensor, s: Array, c: Array, rows: Rows) -> Tensor:
        """The same with P known, which saves time only if X is wide."""
        if self._wide and rows is None:
            return self._by_feature.gradient(P, W, s, c, None)
        return self.gradient(W, s, c, rows)

    def product(self, P: Array, V: Tensor, s: Array, c: Array, rows: Rows) -> tuple[Tensor, Tensor]:
        """Σ_t X_t' s_t (P_t∘U_t − P_t (P_t·U_t)) + c∘V with U = XV; and the slopes along V."""
        if self._wide and rows is None:
            return self._by_feature.product(P, V, s, c)
        batch = self.alone(rows)
        found, slopes = self._on.factors(P, None, self._matrix(V), batch, s, c, 0, _ITSELF)
        return _flat(found), _flat(slopes)

    def slopes(self, P: Array, V: Tensor, rows: Rows) -> Tensor:
        """(P_t − Y_t)·U_t with U = XV, for each row."""
        if self._wide and rows is None:
            return self._by_feature.slopes(P, V)[0]
        # One kernel fewer to compile is worth the product, which is needed once per hypergradient.
        return self.product(P, V, np.ones(len(P), self.dtype), self._on.no_penalty, rows)[1]

    def probabilities(self, W: Tensor, rows: Rows) -> Array:
        """P, with a row for each of `rows`."""
        return self._on.look(self._matrices(W), self.alone(rows))[0]

    def losses(self, W: Tensor, rows: Rows) -> Tensor:
        """−log P_tb with the row's label b, for each row."""
        return _flat(self._on.look(self._matrices(W), self.alone(rows))[1])

    def descend(
        self, W: Tensor, batches: Batches, s: Array, c: Array, rates: Sequence[float]
    ) -> Tensor:
        """W after a gradient step on each batch; `s` is that of all their rows."""
        found, steps = self._matrix(W), np.array(rates, self.dtype)
        if not self._wide:
            return _flat(self._descend(found, batches, s, c, steps))
        found, R = found.copy(), self._on.rows(batches.longest)
        for t in self._on.calls(batches, together=True):
            some = batches[0], batches.starts[t], batches.ends[t], self._labels
            lazy.descend(
                self._X, *some, s, columns(c), steps[t], found, *self._features(), R, self._sizes
            )
        return _flat(found)

    def trace(
        self, W: Tensor, batches: Batches, s: Array, c: Array, rates: Sequence[float]
    ) -> Tensor:
        """W before each of these steps and after the last, one per row."""
        path, steps = self._on.empty(len(rates) + 1), np.array(rates, self.dtype)
        path[0] = self._matrix(W)
        for t in self._on.calls(batches):
            after = path[t.start + 1 : t.stop + 1]
            self._on.step(path[t.start], batches.some(t), s, c, 1, steps[t], after)
        return torch.from_numpy(path).flatten(1)

    def retrace(
        self,
        path: Tensor,
        r: Tensor,
        batches: Batches,
        s: Array,
        c: Array,
        rates: Sequence[float],
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Back over the steps that led from path[t] to path[t + 1], last one first.

        r after r ← r − α_t H_t r at each; and the sums, with r before, of α_t r, of α_t W_t∘r, and
        of α_t times the slopes along r over the batch size, for each row of X.
        """
        Ws, left, steps = self._matrices(path), self._matrix(r), np.array(rates, self.dtype)
        sums, along = np.zeros((2, *self._shape), self.dtype), np.zeros(len(self._all), self.dtype)
        for t in reversed(self._on.calls(batches, singly=batches.rows is self._all)):
            some, turned = batches.some(t), steps[t][::-1].copy()
            given = None, Ws[t], left, some.turned(), s, c, 1, turned
            left, slopes = self._on.factors(*given, weights=turned, sums=sums)
            sizes, its = some.ends - some.starts, slice(some.starts[0], some.ends[-1])
            weighted = np.repeat(steps[t] / sizes.astype(steps.dtype), sizes) * slopes[its]
            np.add.at(along, some.rows[its], weighted)  # a row may be drawn twice
        return _flat(left), _flat(sums[0]), _flat(sums[1]), _flat(along)

    def contract(
        self, W: Tensor, r: Tensor, batches: Batches, s: Array, c: Array, rate: float
    ) -> tuple[Tensor, Tensor]:
        """(I − ηH(B)) r for each batch B in turn, and the sum of all r along the way."""
        left, total = self._contract(self._matrices(W), self._matrix(r), batches, s, c, rate)
        return _flat(left), _flat(total)

    def implicit(
        self,
        W: Tensor,
        batches: Batches,
        weights: Weights,
        c: Array,
        rates: Sequence[float],
        other: Regression,
        rows: Rows,
        rate: float,
        scale: float,
        summed: bool,
        crossed: Array,
    ) -> tuple[Tensor, Tensor]:
        """W after the steps on the first batches; and `contract` on the next ones, starting from
        the gradient of the other data at that W: its result, or the sum, times `scale`.

        If the rows have logits, σ' of them times the slopes along that, over their number, is
        subtracted from `crossed` at the last batch's rows.
        """
        s, D, last = batches.shares(weights), len(rates), len(batches.ends) - 1
        steps, outer = np.array(rates, self.dtype), other.alone(rows)
        # Algorithm 2 of stocBiO: D steps, then v by Algorithm 3, then the cross product.
        y = self._descend(self._matrix(W), batches.some(slice(D)), s, c, steps)
        equal = np.full(outer.longest, 1 / outer.longest, self.dtype)
        r = v = other._on.step(y, outer, equal, self._on.no_penalty, 0, _ITSELF)
        if last > D:
            r, v = self._contract(y[None], r, batches.some(slice(D, last)), s, c, rate)
        v = scale * (v if summed else r)
        if len(crossed):
            cross = batches.some(slice(last, None))
            slopes = self._on.factors(None, y[None], v, cross, s, c, 0, _ITSELF)[1]
            cross.add_cross(weights.values, -slopes, crossed)
        return _flat(y), _flat(v)

    def chain(self, batches: Sequence[Rows], other: Regression) -> Batches | None:
        """The batches, if `implicit` can handle them."""
        return None if self._wide or other._wide else Batches.of(batches, self._all)

    def loop(self, batches: Sequence[Rows]) -> Batches | None:
        """The batches, if there are loops for them; with many features, only for small ones."""
        found = Batches.of(batches, self._all)
        if found is None or not self._wide:
            return found
        small = found.longest * self._on.row_work <= self._shape[0]
        return found if small and found.rows is not self._all else None

    def alone(self, rows: Rows) -> Batches:
        """These rows, or all, as one batch."""
        return Batches.alone(rows, self._all)

    def _descend(self, W: Array, batches: Batches, s: Array, c: Array, rates: Array) -> Array:
        for t in self._on.calls(batches):
            W = self._on.step(W, batches.some(t), s, c, 1, rates[t])
        return W

    def _contract(
        self, W: Array, r: Array, batches: Batches, s: Array, c: Array, rate: float
    ) -> tuple[Array, Array]:
        sums = np.zeros((1, *self._shape), self.dtype)
        rates, ones = np.full((2, len(batches.ends)), [[rate], [1]], self.dtype)
        if self._wide:
            r = self._contract_lazily(W, r, batches, s, c, rates, ones, sums[0])
            return r, sums[0] + r
        # Probabilities of all rows are used by every factor; those of a batch only once.
        of_all = batches.rows is self._all
        P, Ws = (self._on.look(W, batches.some(slice(1)))[0], None) if of_all else (None, W)
        for t in self._on.calls(batches):
            given = P, Ws, r, batches.some(t), s, c, 1, rates[t]
            r, _ = self._on.factors(*given, weights=ones[t], sums=sums)
        return r, sums[0] + r

    def _contract_lazily(
        self,
        W: Array,
        r: Array,
        batches: Batches,
        s: Array,
        c: Array,
        rates: Array,
        weights: Array,
        sums: Array,
    ) -> Array:
        P = self._on.look(W, batches.together())[0]
        r, R, along = r.copy(), self._on.rows(batches.longest), np.empty_like(s)
        for t in self._on.calls(batches, together=True):
            some = batches.rows, batches.starts[t], batches.ends[t], self._labels, s, P
            given = columns(c), rates[t], weights[t], r, sums, along, *self._features(), R
            lazy.contract(self._X, *some, *given, self._sizes)
        return r

    def _features(self) -> tuple[Array, Array]:
        """No feature has been shrunk yet; and all of them."""
        return np.zeros(self._shape[0], np.int32), np.arange(self._shape[0], dtype=np.int32)

    def _matrix(self, W: Tensor) -> Array:
        found: Array = W.numpy().reshape(self._shape)
        return found

    def _matrices(self, W: Tensor) -> Array:
        found: Array = W.numpy().reshape(-1, *self._shape)
        return found

    @cached_property
    def _by_feature(self) -> ByFeature:
        assert isinstance(self._X, tuple)
        return ByFeature(self._X, self._labels, self._shape[0], self._sizes)


def _flat(array: Array) -> Tensor:
    return torch.from_numpy(array.reshape(-1))
