"""X W and X'R on some rows of X, for the forms that X may have (see `compiled.forms`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numba.core import types
from numba.extending import overload

from bilevel.kernels.lanes import item, laid_out, load, store, zeros


def laid(W: Any, classes: Any) -> Any:
    """A matrix with rows as `classes` lays them out: itself, or a copy with zeros behind each row.

    A vector stays as it is.
    """


@overload(laid, jit_options={"nogil": True})
def _laid(W: Any, classes: Any) -> Any:
    same = W.ndim == 1 or classes[0].count == classes[1].count
    return _itself if same else _copied.py_func


def _itself(W: Any, classes: Any) -> Any:
    return W


@njit(nogil=True)
def _copied(W: Any, classes: Any) -> Any:
    wide = np.empty((len(W), len(classes[1])), W.dtype)
    copy(W, wide, 0, len(W), classes)
    return wide


@njit(nogil=True)
def copy(W: Any, wide: Any, first: int, last: int, classes: Any) -> None:
    """Rows that follow one another into rows that are laid out."""
    for j in range(first, last):
        store(wide, j, laid_out(load(W, j, (classes[0], classes[0])), classes))


@njit(nogil=True)
def copy_back(wide: Any, W: Any, first: int, last: int, classes: Any) -> None:
    for j in range(first, last):
        store(W, j, laid_out(load(wide, j, classes), (classes[0], classes[0])))


def push(X: Any, rows: Any, W: Any, Z: Any, classes: Any) -> None:
    """Z_t = X[rows_t] W."""


def pull(X: Any, rows: Any, R: Any, G: Any, classes: Any) -> None:
    """G += Σ_t X[rows_t]' R_t."""


def coefficient(c: Any, j: int, classes: Any) -> Any:
    """Of row j: a number from a vector, or a row of a matrix."""


@overload(coefficient, jit_options={"nogil": True})
def _coefficient(c: Any, j: int, classes: Any) -> Any:
    return _one if c.ndim == 1 else _each


def _one(c: Any, j: int, classes: Any) -> Any:
    return item(c, j)


def _each(c: Any, j: int, classes: Any) -> Any:
    return load(c, j, classes)


@overload(push, jit_options={"nogil": True})
def _push(X: Any, rows: Any, W: Any, Z: Any, classes: Any) -> Any:
    if isinstance(X, types.Array):
        return _push_dense
    return _push_sparse if len(X) == 3 else _push_around


@overload(pull, jit_options={"nogil": True})
def _pull(X: Any, rows: Any, R: Any, G: Any, classes: Any) -> Any:
    if isinstance(X, types.Array):
        return _pull_dense
    return _pull_sparse if len(X) == 3 else _pull_around


def _push_sparse(X: Any, rows: Any, W: Any, Z: Any, classes: Any) -> None:
    for t in range(len(rows)):
        store(Z, t, dot(X[0], X[1], X[2], rows[t], W, classes))


@njit(nogil=True)
def dot(starts: Any, columns: Any, values: Any, i: int, W: Any, classes: Any) -> Any:
    a, b = starts[i], starts[i + 1]
    # Four sums at a time: one would wait for itself.
    z0 = z1 = z2 = z3 = zeros(W, classes)
    for k in range(a, b - 3, 4):
        z0 += item(values, k) * load(W, item(columns, k), classes)
        z1 += item(values, k + 1) * load(W, item(columns, k + 1), classes)
        z2 += item(values, k + 2) * load(W, item(columns, k + 2), classes)
        z3 += item(values, k + 3) * load(W, item(columns, k + 3), classes)
    for k in range(b - (b - a) % 4, b):
        z0 += item(values, k) * load(W, item(columns, k), classes)
    return (z0 + z1) + (z2 + z3)


def _pull_sparse(X: Any, rows: Any, R: Any, G: Any, classes: Any) -> None:
    starts, columns, values = X[0], X[1], X[2]
    for t in range(len(rows)):
        r = load(R, t, classes)
        for k in range(starts[rows[t]], starts[rows[t] + 1]):
            j = item(columns, k)
            store(G, j, load(G, j, classes) + item(values, k) * r)


def _push_around(X: Any, rows: Any, W: Any, Z: Any, classes: Any) -> None:
    background = zeros(W, classes)
    for j in range(len(X[3])):
        background += X[3][j] * load(W, j, classes)
    for t in range(len(rows)):
        store(Z, t, background + dot(X[0], X[1], X[2], rows[t], W, classes))


def _pull_around(X: Any, rows: Any, R: Any, G: Any, classes: Any) -> None:
    pull((X[0], X[1], X[2]), rows, R, G, classes)
    r = zeros(R, classes)
    for t in range(len(rows)):
        r += load(R, t, classes)
    for j in range(len(X[3])):
        store(G, j, load(G, j, classes) + X[3][j] * r)


# Dense rows go four at a time: a row of W or G is then read once for four.
def _push_dense(X: Any, rows: Any, W: Any, Z: Any, classes: Any) -> None:
    fours = len(rows) - len(rows) % 4
    for t in range(0, fours, 4):
        i0, i1, i2, i3 = rows[t], rows[t + 1], rows[t + 2], rows[t + 3]
        z0 = z1 = z2 = z3 = zeros(W, classes)
        for j in range(X.shape[1]):
            w = load(W, j, classes)
            z0 += X[i0, j] * w
            z1 += X[i1, j] * w
            z2 += X[i2, j] * w
            z3 += X[i3, j] * w
        store(Z, t, z0)
        store(Z, t + 1, z1)
        store(Z, t + 2, z2)
        store(Z, t + 3, z3)
    for t in range(fours, len(rows)):
        z0 = zeros(W, classes)
        for j in range(X.shape[1]):
            z0 += X[rows[t], j] * load(W, j, classes)
        store(Z, t, z0)


def _pull_dense(X: Any, rows: Any, R: Any, G: Any, classes: Any) -> None:
    fours = len(rows) - len(rows) % 4
    for t in range(0, fours, 4):
        i0, i1, i2, i3 = rows[t], rows[t + 1], rows[t + 2], rows[t + 3]
        r0, r1 = load(R, t, classes), load(R, t + 1, classes)
        r2, r3 = load(R, t + 2, classes), load(R, t + 3, classes)
        for j in range(X.shape[1]):
            g = load(G, j, classes) + X[i0, j] * r0 + X[i1, j] * r1
            store(G, j, g + X[i2, j] * r2 + X[i3, j] * r3)
    for t in range(fours, len(rows)):
        r0 = load(R, t, classes)
        for j in range(X.shape[1]):
            store(G, j, load(G, j, classes) + X[rows[t], j] * r0)
