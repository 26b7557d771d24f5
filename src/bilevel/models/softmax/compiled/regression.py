"""Softmax regression on the rows of one matrix: tensors outside, kernels inside."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from bilevel.kernels import chains, estimates, lazy, softmax, threads
from bilevel.kernels.lanes import close, padded
from bilevel.models.softmax.compiled.batches import Batches, Weights, existing
from bilevel.models.softmax.compiled.forms import Array, Form, csr, fastest, work
from bilevel.numerics.large_pages import copy_of, empty_like
from bilevel.problem.sources import Rows, scipy_csr

_IN_CACHE = 2**18  # bytes of W up to which every thread can have a derivative of its own
_WORTH_A_THREAD = 20_000  # multiplications a class; fewer are done while another thread starts
_AT_ONCE = 2**28  # multiplications a class in one call, of about a second: it cannot be interrupted


class Regression:
    """Its derivatives by W; see `bilevel.kernels.softmax` for the formulas.

    W, V and what comes out are flat tensors of (p, C). `s` holds the weights of the rows, over
    the batch size, and c twice the penalty's coefficients, (p,) or (p, C). Probabilities P stay as
    the kernels lay them out.
    """

    def __init__(self, X: Tensor, labels: Tensor, classes: int) -> None:
        self._X: Form = csr(scipy_csr(X)) if X.is_sparse_csr else fastest(X.numpy())
        self._labels, self._all = labels.numpy(), np.arange(len(labels))
        self._shape, self._dtype = (X.shape[1], classes), X.dtype
        self._row_work = work(self._X) / max(1, len(labels))
        size = X.shape[1] * classes * X.dtype.itemsize
        self._wide = isinstance(self._X, tuple) and len(self._X) == 3 and size > _IN_CACHE
        self._classes = close(classes) if self._wide else padded(classes, X.dtype.itemsize)
        self._none = self._empty(0)
        self.dtype = self._none.dtype

    def gradient(
        self, W: Tensor, s: Array, c: Array, rows: Rows, out: Tensor | None = None
    ) -> Tensor:
        """Σ_t s_t X_t'(P_t − Y_t) + c∘W; written to `out`, which may be W."""
        return self._derivative(softmax.ERRORS, self._none, W, s, c, rows, s, out)

    def gradient_at(self, P: Array, W: Tensor, s: Array, c: Array, rows: Rows) -> Tensor:
        """The same, where P is known."""
        return self._derivative(softmax.ERRORS_AT, P, W, s, c, rows, s)

    def product(self, P: Array, V: Tensor, s: Array, c: Array, rows: Rows) -> tuple[Tensor, Tensor]:
        """Σ_t X_t' s_t (P_t∘U_t − P_t (P_t·U_t)) + c∘V with U = XV; and the slopes along V."""
        slopes = torch.empty(len(s), dtype=self._dtype)
        return self._derivative(softmax.SPREADS, P, V, s, c, rows, slopes.numpy()), slopes

    def probabilities(self, W: Tensor, rows: Rows) -> Array:
        """P, with a row for each of `rows`."""
        of = self._chosen(rows)
        P = self._empty(len(of))
        softmax.probabilities(self._X, of, self._matrix(W), P, self._classes, self._team(len(of)))
        return P

    def losses(self, W: Tensor, rows: Rows) -> Tensor:
        """−log P_tb with the row's label b, for each row."""
        of, W_ = self._chosen(rows), self._matrix(W)
        found = torch.empty(len(of), dtype=self._dtype)
        shared = self._classes, self._team(len(of))
        softmax.losses(self._X, of, self._labels, W_, found.numpy(), *shared)
        return found

    def slopes(self, P: Array, V: Tensor, rows: Rows) -> Tensor:
        """(P_t − Y_t)·U_t with U = XV, for each row."""
        of, V_ = self._chosen(rows), self._matrix(V)
        found = torch.empty(len(of), dtype=self._dtype)
        shared = self._classes, self._team(len(of))
        softmax.slopes(self._X, of, self._labels, P, V_, found.numpy(), *shared)
        return found

    def descend(
        self, W: Tensor, batches: Batches, s: Array, c: Array, rates: Sequence[float]
    ) -> Tensor:
        """W after a gradient step on each batch; `s` of all their rows."""
        return self._descended(W, batches, s, c, rates, self._no_path)

    def trace(
        self, W: Tensor, batches: Batches, s: Array, c: Array, rates: Sequence[float]
    ) -> Tensor:
        """W before each of these steps, and after the last, each in a row."""
        path = torch.empty(len(rates) + 1, W.numel(), dtype=self._dtype)
        matrices = path.numpy().reshape(len(path), *self._shape)
        self._descended(W, batches, s, c, rates, matrices)
        return path

    def retrace(
        self,
        path: Tensor,
        r: Tensor,
        batches: Batches,
        s: Array,
        c: Array,
        rates: Sequence[float],
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Back over the steps that led from path[t] to path[t + 1], the last one first.

        r after r ← r − α_t H_t r at each; and the sums, with r before, of α_t r, of α_t W_t∘r, and
        of α_t times the slopes along r over the batch size, for each row of X.
        """
        r, total, across = r.clone(), torch.zeros_like(r), torch.zeros_like(r)
        along = torch.zeros(len(self._all), dtype=self._dtype)
        rows, starts, ends, longest = batches
        steps, matrices = np.array(rates, s.dtype), path.numpy()
        matrices = matrices.reshape(len(path), *self._shape)
        for t in reversed(self._calls(batches)):
            chains.retrace(
                *(self._X, rows, starts[t], ends[t], self._labels, s),
                *(c, steps[t], matrices[t], self._matrix(r)),
                *(self._matrix(total), along.numpy(), self._matrix(across), self._classes),
                self._team(longest),
            )
        return r, total, across, along

    def contract(
        self, W: Tensor, r: Tensor, batches: Batches, s: Array, c: Array, rate: float
    ) -> tuple[Tensor, Tensor]:
        """(I − ηH(B)) r for each batch B, and the sum of all r on the way."""
        r, total = copy_of(r), copy_of(r)
        vectors = (self._matrix(W), self._matrix(r), self._matrix(total), self._classes)
        for t in self._calls(batches):
            (rows, starts, ends, longest), its = batches.part(t)
            shared = (self._labels, s[its], c, s.dtype.type(rate))
            if self._wide:
                lazy.contract(self._X, rows, ends, *shared, *vectors)
            else:
                team = self._team(longest)
                chains.contract(self._X, rows, starts, ends, *shared, *vectors, team)
        return r, total

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
        """W after the steps on the first batches; and `contract` from the gradient of other data
        there on, by the next ones: what comes of it, or the sum, times `scale`.

        If the rows have logits, σ' of them times the slopes along that, over their number, is
        taken away from `crossed` at the last batch's rows.
        """
        steady, V, chosen = empty_like(W), empty_like(W), other._chosen(rows)
        at, starts, ends, longest = batches
        number = self.dtype.type
        estimates.implicit(
            (self._X, self._labels, at, starts, ends),
            (other._X, other._labels, chosen),
            *(weights, c, np.array(rates, number), number(rate), number(scale), summed),
            *(self._matrix(W), self._matrix(steady), self._matrix(V), crossed, self._classes),
            max(self._team(longest), other._team(len(chosen))),
        )
        return steady, V

    def chain(self, batches: Sequence[Rows], other: Regression) -> Batches | None:
        """The batches, if whole estimates on them are one call."""
        if self._wide or other._wide:
            return None
        found = Batches.of(batches, self._all)
        if found is None or len(found.ends) * found.longest * self._row_work > _AT_ONCE:
            return None
        return found

    def loop(self, batches: Sequence[Rows]) -> Batches | None:
        """The batches, if whole loops on them are one call; for many features, on small ones."""
        found = Batches.of(batches, self._all)
        if found is None or not self._wide:
            return found
        small = found.longest * self._row_work <= self._shape[0]
        return found if small and found.rows is not self._all else None

    def alone(self, rows: Rows) -> Batches:
        """These rows, or all, as one batch."""
        found = Batches.of([rows], self._all)
        assert found is not None
        return found

    def _descended(
        self,
        W: Tensor,
        batches: Batches,
        s: Array,
        c: Array,
        rates: Sequence[float],
        path: Array,
    ) -> Tensor:
        W = copy_of(W)
        at, steps = self._matrix(W), np.array(rates, s.dtype)
        is_lazy = self._wide and len(set(rates)) == 1 and not len(path)
        for t in self._calls(batches):
            (rows, starts, ends, longest), its = batches.part(t)
            shared = (self._labels, s[its], c)
            if is_lazy:
                lazy.descend(self._X, rows, ends, *shared, steps[0], at, self._classes)
            else:
                kept = path[t.start : t.stop + 1] if len(path) else path
                data, team = (self._X, rows, starts, ends), self._team(longest)
                chains.descend(*data, *shared, steps[t], at, kept, self._classes, team)
        return W

    def _derivative(
        self,
        kind: int,
        P: Array,
        V: Tensor,
        s: Array,
        c: Array,
        rows: Rows,
        slopes: Array,
        out: Tensor | None = None,
    ) -> Tensor:
        """X'R + c∘V, with an R of `softmax.residuals`."""
        out = empty_like(V) if out is None else out
        of = self._chosen(rows)
        task = (self._X, of, self._labels, s, P, self._matrix(V), slopes)
        shared = (*task, c, self._matrix(out))
        if self._wide and rows is None:
            X, cuts = self._transposed
            at = cuts[self._team(len(of))]
            softmax.wide_derivative(kind, *shared, X, at, self._classes)
        else:
            softmax.derivative(kind, *shared, self._classes, self._team(len(of)))
        return out

    def _chosen(self, rows: Rows) -> Array:
        return self._all if rows is None else existing(rows.numpy(), len(self._all))

    def _matrix(self, W: Tensor) -> Array:
        found: Array = W.numpy().reshape(self._shape)
        return found

    def _empty(self, rows: int) -> Array:
        found: Array = torch.empty(rows, len(self._classes[1]), dtype=self._dtype).numpy()
        return found

    def _team(self, rows: int) -> int:
        """Threads for so many rows."""
        worth = int(rows * self._row_work / _WORTH_A_THREAD)
        return 1 if worth <= 1 else min(worth, threads.of_kernel())

    def _calls(self, batches: Batches) -> list[slice]:
        """Steps that go into one call."""
        count = len(batches.ends)
        size = max(1, int(_AT_ONCE / (1 + batches.longest * self._row_work)))
        return [slice(t, min(t + size, count)) for t in range(0, count, size)]

    @cached_property
    def _no_path(self) -> Array:
        return np.empty((0, *self._shape), self.dtype)

    @cached_property
    def _transposed(self) -> tuple[Form, _Cuts]:
        """X' in CSR form, and how threads share its rows."""
        starts, columns, values = self._X
        shape = (len(self._all), self._shape[0])
        X = csr(scipy.sparse.csr_array((values, columns, starts), shape).T.tocsr())
        return X, _Cuts(X[0])


class _Cuts(dict[int, Array]):
    """By the number of threads: where to cut rows of CSR form into parts of equal work."""

    def __init__(self, starts: Array) -> None:
        self._starts = starts

    def __missing__(self, count: int) -> Array:
        goals = np.linspace(0, self._starts[-1], count + 1)[1:-1]
        inner = np.searchsorted(self._starts, goals)
        self[count] = np.array([0, *inner, len(self._starts) - 1])
        return self[count]
