"""Softmax regression on the rows of one matrix: tensors outside, kernels inside."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from bilevel.compiled import chains, products, softmax, threads
from bilevel.compiled.forms import Array, Form, csr, fastest, work
from bilevel.compiled.lanes import close, padded
from bilevel.data import Rows, scipy_csr

Kernel = Callable[..., None]

_IN_CACHE = 2**18  # bytes of W up to which every thread can have a derivative of its own
_LINE = 64  # bytes of a cache line
_WORTH_A_THREAD = 250_000  # multiplications a class; fewer are done while another thread starts


class Regression:
    """Its derivatives by W; see `bilevel.compiled.softmax` for the formulas.

    W, V and what comes out are flat tensors of (p, C). `s` holds the weights of the rows, over
    the batch size, and c twice the penalty's coefficients, (p, 1) or (p, C). Probabilities P stay
    as the kernels lay them out.
    """

    def __init__(self, X: Tensor, labels: Tensor, classes: int) -> None:
        self._X: Form = csr(scipy_csr(X)) if X.is_sparse_csr else fastest(X.numpy())
        self._labels, self._all = labels.numpy(), np.arange(len(labels))
        self._count, self._dtype = classes, X.dtype
        self._row_work = work(self._X) / max(1, len(labels))
        size = X.shape[1] * classes * X.dtype.itemsize
        self._wide = isinstance(self._X, tuple) and len(self._X) == 3 and size > _IN_CACHE
        self._classes = close(classes) if self._wide else padded(classes, X.dtype.itemsize)
        self._shape = X.shape[1], len(self._classes[1])  # of W, as it is laid out

    def gradient(self, W: Tensor, s: Tensor, c: Tensor, rows: Rows) -> Tensor:
        """Σ_t s_t X_t'(P_t − Y_t) + c∘W."""
        at, of, weights = self._laid(W), self._chosen(rows), s.numpy()
        kernels = softmax.errors, softmax.gradient

        def call(kernel: Kernel, t: slice, out: Array) -> None:
            kernel(self._X, of[t], self._labels, weights[t], at, out, self._classes)

        return self._derivative(kernels, call, W, c, rows)

    def gradient_at(self, P: Array, W: Tensor, s: Tensor, c: Tensor, rows: Rows) -> Tensor:
        """The same, where P is known."""
        of, weights = self._chosen(rows), s.numpy()
        kernels = softmax.errors_at, softmax.gradient_at

        def call(kernel: Kernel, t: slice, out: Array) -> None:
            kernel(self._X, of[t], self._labels, weights[t], P[t], out, self._classes)

        return self._derivative(kernels, call, W, c, rows)

    def product(
        self, P: Array, V: Tensor, s: Tensor, c: Tensor, rows: Rows
    ) -> tuple[Tensor, Tensor]:
        """Σ_t X_t' s_t (P_t∘U_t − P_t (P_t·U_t)) + c∘V with U = XV; and the slopes along V."""
        at, of, weights = self._laid(V), self._chosen(rows), s.numpy()
        kernels, slopes = (softmax.spreads, softmax.product), torch.empty_like(s)
        along = slopes.numpy()

        def call(kernel: Kernel, t: slice, out: Array) -> None:
            shared = self._X, of[t], self._labels, P[t], weights[t], at, along[t]
            kernel(*shared, out, self._classes)

        return self._derivative(kernels, call, V, c, rows), slopes

    def probabilities(self, W: Tensor, rows: Rows) -> Array:
        """P, with a row for each of `rows`."""
        at, of = self._laid(W), self._chosen(rows)
        P = self._empty(len(of))
        self._spread_out(
            lambda t: softmax.probabilities(self._X, of[t], at, P[t], self._classes), len(of)
        )
        return P

    def losses(self, W: Tensor, rows: Rows) -> Tensor:
        """−log P_tb with the row's label b, for each row."""
        at, of = self._laid(W), self._chosen(rows)
        found = torch.empty(len(of), dtype=self._dtype)
        out = found.numpy()
        self._spread_out(
            lambda t: softmax.losses(self._X, of[t], self._labels, at, out[t], self._classes),
            len(of),
        )
        return found

    def slopes(self, P: Array, V: Tensor, rows: Rows) -> Tensor:
        """(P_t − Y_t)·U_t with U = XV, for each row."""
        along, of = self._laid(V), self._chosen(rows)
        found = torch.empty(len(of), dtype=self._dtype)
        out = found.numpy()
        self._spread_out(
            lambda t: softmax.slopes(
                self._X, of[t], self._labels, P[t], along, out[t], self._classes
            ),
            len(of),
        )
        return found

    def descend(self, W: Tensor, batches: list[Tensor], s: Tensor, c: Tensor, rates: Any) -> Tensor:
        """W after a gradient step on each batch; `s` of all their rows."""
        at = self._copied(W)
        rows, ends = _joined(batches)
        shared = (self._X, rows, ends, self._labels, s.numpy(), self._coefficients(c))
        steps = np.array(rates, at.dtype)
        if self._wide and len(set(rates)) == 1:
            chains.descend_lazily(*shared, steps[0], at, self._classes)
        else:
            chains.descend(*shared, steps, at, self._classes)
        return self._flat(at)

    def contract(
        self, W: Tensor, r: Tensor, batches: list[Tensor], s: Tensor, c: Tensor, rate: float
    ) -> tuple[Tensor, Tensor]:
        """(I − ηH(B)) r for each batch B, and the sum of all r on the way."""
        at, left, total = self._laid(W), self._copied(r), self._copied(r)
        rows, ends = _joined(batches)
        kernel = chains.contract_lazily if self._wide else chains.contract
        kernel(
            *(self._X, rows, ends, self._labels, s.numpy(), self._coefficients(c)),
            *(at.dtype.type(rate), at, left, total, self._classes),
        )
        return self._flat(left), self._flat(total)

    def worth_threads(self, rows: int) -> bool:
        """Whether a product with so many rows is shared by threads."""
        return len(self._parts(rows)) > 1

    def _chosen(self, rows: Rows) -> Array:
        return self._all if rows is None else rows.numpy()

    def _laid(self, W: Tensor) -> Array:
        """(p, C) as the kernels want it: a copy if rows are padded, else the same memory."""
        rows: Array = W.numpy().reshape(-1, self._count)
        return rows if self._shape[1] == self._count else self._padded(rows)

    def _copied(self, W: Tensor) -> Array:
        """The same, to be written to."""
        return self._padded(W.numpy().reshape(-1, self._count))

    def _padded(self, rows: Array) -> Array:
        found = _zeros(*self._shape, rows.dtype)
        products.pad(rows, found)
        return found

    def _flat(self, W: Array) -> Tensor:
        rows = W
        if self._shape[1] > self._count:
            rows = np.empty((len(W), self._count), W.dtype)
            products.trimmed(W, rows)
        return torch.from_numpy(rows.reshape(-1))

    def _coefficients(self, c: Tensor) -> Array:
        """A number a feature, or a row a feature."""
        return c.numpy().reshape(-1) if c.shape[1] == 1 else self._laid(c)

    def _empty(self, rows: int) -> Array:
        found: Array = torch.empty(rows, self._shape[1], dtype=self._dtype).numpy()
        return found

    def _parts(self, rows: int) -> list[slice]:
        """Rows for each thread."""
        count = max(1, min(threads.count(), int(rows * self._row_work / _WORTH_A_THREAD)))
        cuts = [rows * i // count for i in range(count + 1)]
        return [slice(a, b) for a, b in pairwise(cuts)]

    def _spread_out(self, call: Callable[[slice], None], rows: int) -> None:
        threads.run([partial(call, part) for part in self._parts(rows)])

    def _derivative(
        self,
        kernels: tuple[Kernel, Kernel],
        call: Callable[[Kernel, slice, Array], None],
        V: Tensor,
        c: Tensor,
        rows: Rows,
    ) -> Tensor:
        """X'R + c∘V, by one of two kernels: one that gives R, and one that gives X'R."""
        n = len(self._all) if rows is None else rows.numel()
        if self._wide and rows is None:
            R = self._empty(n)
            self._spread_out(lambda t: call(kernels[0], t, R[t]), n)
            return self._pulled(R, c, V)
        parts = self._parts(n)
        own = [self._penalty(c, V)]
        own += [_zeros(*self._shape, own[0].dtype) for _ in parts[1:]]
        threads.run([partial(call, kernels[1], t, G) for t, G in zip(parts, own, strict=True)])
        for other in own[1:]:
            own[0] += other
        return self._flat(own[0])

    def _penalty(self, c: Tensor, V: Tensor) -> Array:
        """c∘V, laid out."""
        found = _zeros(*self._shape, c.numpy().dtype)
        np.multiply(c.numpy(), V.numpy().reshape(-1, self._count), out=found[:, : self._count])
        return found

    def _pulled(self, R: Array, c: Tensor, V: Tensor) -> Tensor:
        """X'R + c∘V for all rows, feature by feature."""
        X, features, cuts = self._transposed
        out = torch.empty(self._shape, dtype=self._dtype)
        G, along, coefficients = out.numpy(), self._laid(V), self._coefficients(c)

        def pull(a: int, b: int) -> None:
            of = slice(a, b)
            softmax.products(X, features[of], R, coefficients[of], along[of], G[of], self._classes)

        threads.run([partial(pull, a, b) for a, b in pairwise(cuts(threads.count()))])
        return out.view(-1)

    @cached_property
    def _transposed(self) -> tuple[Form, Array, Callable[[int], list[int]]]:
        """X' in CSR form, the numbers of its rows, and how to cut it into parts of equal work."""
        starts, columns, values = self._X
        shape = (len(self._all), self._shape[0])
        X = csr(scipy.sparse.csr_array((values, columns, starts), shape).T.tocsr())

        def cuts(count: int) -> list[int]:
            goals = np.linspace(0, X[0][-1], count + 1)[1:-1]
            return [0, *np.searchsorted(X[0], goals).tolist(), self._shape[0]]

        return X, np.arange(self._shape[0]), cuts


def _joined(batches: list[Tensor]) -> tuple[Array, Array]:
    """The rows of all batches one after another, and where each ends."""
    ends = np.array(list(accumulate(batch.numel() for batch in batches)))
    return (torch.cat(batches) if len(batches) > 1 else batches[0]).numpy(), ends


def _zeros(rows: int, width: int, dtype: Any) -> Array:
    """Zeros that begin on a cache line."""
    room = np.zeros(rows * width + _LINE // dtype.itemsize, dtype)
    start = -room.__array_interface__["data"][0] % _LINE // dtype.itemsize
    return room[start : start + rows * width].reshape(rows, width)
