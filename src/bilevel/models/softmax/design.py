"""The two products from which softmax regression is built: X W and X'R."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from bilevel.problem.parts import Part
from bilevel.problem.sources import Rows, scipy_csr, torch_csr
from bilevel.problem.stored.base import StoredRows


class Design(ABC):
    """The rows of a data matrix X (n, p)."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def push(self, W: Tensor) -> Tensor:
        """X W: (n, c) from (p, c)."""

    @abstractmethod
    def pull(self, R: Tensor) -> Tensor:
        """X'R: (p, c) from (n, c)."""

    @abstractmethod
    def pull_squared(self, R: Tensor) -> Tensor:
        """(X∘X)'R: (p, c) from (n, c)."""

    def grams(self, T: Tensor) -> Tensor | None:
        """Σ_i T_ik X_i X_i' as (p, c, p) from (n, c), for rows in memory; otherwise None."""
        return None

    @abstractmethod
    def gram(self) -> Tensor | None:
        """X'X/n, or an approximation, if cheap to keep; otherwise None."""

    @abstractmethod
    def take(self, rows: Rows) -> Design:
        """Some of the rows; all of them for None."""


_GRAM_LIMIT = 4000  # features up to which X'X is kept and factorised
_GRAM_ROWS = 8  # rows per feature to build it from: more would cost more than they save in CG
_LEAST_ROWS = 4000
_ENTRIES = 1 << 20  # of the rows times their weights, at a time


class DenseDesign(Design):
    """X in memory: all rows, or one process's part of them."""

    def __init__(self, X: Tensor, part: Part | None = None) -> None:
        self._X, self._part = X, part or Part(0, len(X), len(X))
        self._gram: Tensor | None = None
        self._taken: tuple[Tensor, DenseDesign] | None = None

    def __len__(self) -> int:
        return len(self._X)

    def push(self, W: Tensor) -> Tensor:
        return self._X @ W

    def grams(self, T: Tensor) -> Tensor | None:
        p, c = self._X.shape[1], T.shape[1]
        found = self._X.new_zeros(p, c * p)
        size = max(1, _ENTRIES // (c * p))
        for X, t in zip(torch.split(self._X, size), torch.split(T, size), strict=True):
            found.addmm_(X.T, (t[:, :, None] * X[:, None, :]).reshape(len(X), c * p))
        return found.view(p, c, p)

    def pull(self, R: Tensor) -> Tensor:
        # For a tall X and a thin R, R'X is several times faster than X'R.
        return (R.T @ self._X).T

    def pull_squared(self, R: Tensor) -> Tensor:
        return (R.T @ self._X.square()).T

    def gram(self) -> Tensor | None:
        if self._gram is None and self._X.shape[1] <= _GRAM_LIMIT:
            enough, part = max(_LEAST_ROWS, _GRAM_ROWS * self._X.shape[1]), self._part
            # Rows at regular intervals: the mean over parts is then that of the whole.
            every = max(1, part.total // enough)
            some = self._X[-part.first % every :: every]
            share = len(part) / part.total
            self._gram = some.T @ some / (-(-part.total // every) * share)
        return self._gram

    def take(self, rows: Rows) -> Design:
        if rows is None:
            return self
        # The last ones are kept: solves on a sample ask for it at every point, and for its Gram
        # matrix, which costs as much as a dozen products.
        if self._taken is None or self._taken[0] is not rows:
            self._taken = rows, DenseDesign(self._X[rows])
        return self._taken[1]


class SparseDesign(Design):
    """X in CSR form, with its transpose kept for the whole matrix."""

    def __init__(self, X: Tensor) -> None:
        self._X = X
        self._scipy = scipy_csr(X)
        self._transposed: Tensor | None = None

    def __len__(self) -> int:
        return self._X.shape[0]

    def push(self, W: Tensor) -> Tensor:
        return self._X @ W

    def pull(self, R: Tensor) -> Tensor:
        return self._transpose() @ R

    def pull_squared(self, R: Tensor) -> Tensor:
        return torch_csr(self._scipy.T.tocsr().power(2)) @ R

    def gram(self) -> None:
        return None

    def take(self, rows: Rows) -> Design:
        return self if rows is None else SparseDesign(torch_csr(self._scipy[rows.numpy()]))

    def _transpose(self) -> Tensor:
        if self._transposed is None:
            self._transposed = torch_csr(self._scipy.T.tocsr())
        return self._transposed


class StoredDesign(Design):
    """X in a file: a batch is read at once, a product with all rows block by block.

    A block and the thin factors, (n, c) and (p, c), are in memory.
    """

    def __init__(self, X: StoredRows) -> None:
        self._X = X
        self._gram: Tensor | None = None

    def __len__(self) -> int:
        return len(self._X)

    def push(self, W: Tensor) -> Tensor:
        product = W.new_empty(len(self), W.shape[1])
        for rows, block in self._X.blocks():
            torch.mm(block, W, out=product[rows])
        return product

    def pull(self, R: Tensor) -> Tensor:
        total = R.new_zeros(R.shape[1], self._X.shape[1])
        for rows, block in self._X.blocks():
            total.addmm_(R[rows].T, block)
        return total.T

    def pull_squared(self, R: Tensor) -> Tensor:
        total = R.new_zeros(R.shape[1], self._X.shape[1])
        for rows, block in self._X.blocks():
            total.addmm_(R[rows].T, block.square())
        return total.T

    def gram(self) -> Tensor | None:
        if self._gram is None and self._X.shape[1] <= _GRAM_LIMIT:
            total = torch.zeros(self._X.shape[1], self._X.shape[1], dtype=self._X.dtype)
            for _, block in self._X.blocks():
                total.addmm_(block.T, block)
            self._gram = total.div_(len(self))
        return self._gram

    def take(self, rows: Rows) -> Design:
        return self if rows is None else DenseDesign(self._X.take(rows))


def design(X: Tensor | StoredRows, part: Part | None = None) -> Design:
    """The products with X, which is all of the rows or one process's part of them."""
    if isinstance(X, StoredRows):
        return StoredDesign(X)
    return SparseDesign(X) if X.is_sparse_csr else DenseDesign(X, part)
