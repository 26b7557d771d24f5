"""X W and X'R on some rows of X, for the forms that X may have (see `bilevel.compiled.forms`)."""

from __future__ import annotations

from typing import Any

from numba import njit
from numba.core import types
from numba.extending import overload

from bilevel.compiled.kernel import kernel
from bilevel.compiled.lanes import item, load, store, zeros


@kernel
def pad(rows: Any, wide: Any) -> None:
    """Rows into the first columns of longer ones; here, as numpy is slow on short rows."""
    for j in range(rows.shape[0]):
        for k in range(rows.shape[1]):
            wide[j, k] = rows[j, k]


@kernel
def trimmed(wide: Any, rows: Any) -> None:
    """And back."""
    for j in range(rows.shape[0]):
        for k in range(rows.shape[1]):
            rows[j, k] = wide[j, k]


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
        store(Z, t, _dot(X[0], X[1], X[2], rows[t], W, classes))


@njit(nogil=True)
def _dot(starts: Any, columns: Any, values: Any, i: int, W: Any, classes: Any) -> Any:
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
        store(Z, t, background + _dot(X[0], X[1], X[2], rows[t], W, classes))


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
