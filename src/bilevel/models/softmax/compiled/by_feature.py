"""Derivatives on all rows of a sparse matrix with many features."""

from __future__ import annotations

from functools import partial

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from bilevel.kernels import softmax, threads
from bilevel.kernels.registers import Sizes
from bilevel.models.softmax.compiled.forms import Array, csr
from bilevel.numerics.large_pages import empty_like


class ByFeature:
    """X'R + c∘V feature by feature, with X' in CSR form.

    A separate sum for each thread, as used for few features, would not fit into the cache.
    """

    def __init__(self, X: tuple[Array, ...], labels: Array, features: int, sizes: Sizes):
        starts, columns, values, _ = X
        shape = (len(labels), features)
        self._X, self._labels, self._sizes = X, labels, sizes
        self._transposed = csr(scipy.sparse.csr_array((values, columns, starts), shape).T.tocsr())

    def gradient(self, P: Array, W: Tensor, s: Array, c: Array, out: Tensor | None) -> Tensor:
        R = s[:, None] * P
        R[np.arange(len(R)), self._labels] -= s
        return self._back(R, c, W, out)

    def product(self, P: Array, V: Tensor, s: Array, c: Array) -> tuple[Tensor, Tensor]:
        slopes, U, means = self.slopes(P, V)
        # s_t (P_t∘U_t − P_t (P_t·U_t)), in place: rows are few here, and features many.
        U -= means[:, None]
        U *= P
        U *= s[:, None]
        return self._back(U, c, V, None), slopes

    def slopes(self, P: Array, V: Tensor) -> tuple[Tensor, Array, Array]:
        """(P_t − Y_t)·U_t, U = XV and P_t·U_t."""
        U, nothing = np.empty_like(P), P[:0]
        self._multiply(self._X, V.numpy().reshape(-1, P.shape[1]), nothing, nothing, U)
        means = np.einsum("tk,tk->t", P, U)
        return torch.from_numpy(means - U[np.arange(len(U)), self._labels]), U, means

    def _back(self, R: Array, c: Array, V: Tensor, out: Tensor | None) -> Tensor:
        out = empty_like(V) if out is None else out
        matrices = (tensor.numpy().reshape(-1, R.shape[1]) for tensor in (V, out))
        self._multiply(self._transposed, R, c.reshape(len(c), -1), *matrices)
        return out

    def _multiply(self, X: tuple[Array, ...], R: Array, c: Array, V: Array, out: Array) -> None:
        """Threads share the rows of X, cut into parts of equal work."""
        # Frequent words have thousands of entries: parts of equal length would not be equal work.
        starts, count = X[0], threads.count()
        cuts = np.searchsorted(starts, np.linspace(0, starts[-1], count + 1)[1:-1])
        parts = zip([0, *cuts], [*cuts, len(starts) - 1], strict=True)
        given = R, c, V, out, self._sizes
        threads.run([partial(softmax.multiply, X, *map(int, part), *given) for part in parts])
