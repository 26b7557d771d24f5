"""X W and X'R on some rows of X, for the two forms that X may have.

Either it is dense; or it is S + 1b' with a sparse S, as (starts, columns, values, b), where b may
be empty. Then X W = S W + 1(b'W) and X'R = S'R + b(1'R).
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import overload

from bilevel.kernels.kernel import OPTIONS, inner
from bilevel.kernels.registers import filled, holds_eight, item, load, store


def push(X: Any, rows: Any, W: Any, Z: Any, classes: Any) -> None:
    """Z_t = X[rows_t] W."""


def pull(X: Any, rows: Any, R: Any, G: Any, classes: Any) -> None:
    """G += Σ_t X[rows_t]' R_t."""


@overload(push, jit_options=OPTIONS)
def _push(X: Any, rows: Any, W: Any, Z: Any, classes: Any) -> Any:
    # Decided by type, when a kernel is compiled: no branch is left in its loops.
    return _push_dense if isinstance(X, types.Array) else _push_sparse


@overload(pull, jit_options=OPTIONS)
def _pull(X: Any, rows: Any, R: Any, G: Any, classes: Any) -> Any:
    return _pull_dense if isinstance(X, types.Array) else _pull_sparse


@inner
def dot(X: Any, i: int, W: Any, classes: Any) -> Any:
    """S_i W."""
    starts, columns, values = X[0], X[1], X[2]
    a, b = starts[i], starts[i + 1]
    # Four sums at a time: one would wait for itself.
    z0 = z1 = z2 = z3 = filled(W, 0, classes)
    for k in range(a, b - 3, 4):
        z0 += item(values, k) * load(W, item(columns, k), classes)
        z1 += item(values, k + 1) * load(W, item(columns, k + 1), classes)
        z2 += item(values, k + 2) * load(W, item(columns, k + 2), classes)
        z3 += item(values, k + 3) * load(W, item(columns, k + 3), classes)
    for k in range(b - (b - a) % 4, b):
        z0 += item(values, k) * load(W, item(columns, k), classes)
    return (z0 + z1) + (z2 + z3)


def _push_sparse(X: Any, rows: Any, W: Any, Z: Any, classes: Any) -> None:
    # b'W is the same for all rows: once a call.
    background = filled(W, 0, classes)
    for j in range(len(X[3])):
        background += X[3][j] * load(W, j, classes)
    for t in range(len(rows)):
        store(Z, t, background + dot(X, rows[t], W, classes), classes)


def _pull_sparse(X: Any, rows: Any, R: Any, G: Any, classes: Any) -> None:
    starts, columns, values, background = X
    # Σ_t R_t, for b(1'R): the background is added once, not for each row.
    whole = filled(R, 0, classes)
    for t in range(len(rows)):
        r = load(R, t, classes)
        whole += r  # b(1'R) needs the sum alone
        for k in range(starts[rows[t]], starts[rows[t] + 1]):
            j = item(columns, k)
            store(G, j, load(G, j, classes) + item(values, k) * r, classes)
    for j in range(len(background)):
        store(G, j, load(G, j, classes) + background[j] * whole, classes)


# Dense rows go four at a time, or eight where the registers hold so many: a row of W or G is then
# read once for all of them.
def _push_dense(X: Any, rows: Any, W: Any, Z: Any, classes: Any) -> None:
    eights = (len(rows) - len(rows) % 8) * holds_eight(W, classes)
    for t in range(0, eights, 8):
        i0, i1, i2, i3 = rows[t], rows[t + 1], rows[t + 2], rows[t + 3]
        i4, i5, i6, i7 = rows[t + 4], rows[t + 5], rows[t + 6], rows[t + 7]
        z0 = z1 = z2 = z3 = z4 = z5 = z6 = z7 = filled(W, 0, classes)
        for j in range(X.shape[1]):
            w = load(W, j, classes)
            z0 += X[i0, j] * w
            z1 += X[i1, j] * w
            z2 += X[i2, j] * w
            z3 += X[i3, j] * w
            z4 += X[i4, j] * w
            z5 += X[i5, j] * w
            z6 += X[i6, j] * w
            z7 += X[i7, j] * w
        store(Z, t, z0, classes)
        store(Z, t + 1, z1, classes)
        store(Z, t + 2, z2, classes)
        store(Z, t + 3, z3, classes)
        store(Z, t + 4, z4, classes)
        store(Z, t + 5, z5, classes)
        store(Z, t + 6, z6, classes)
        store(Z, t + 7, z7, classes)
    fours = len(rows) - (len(rows) - eights) % 4
    for t in range(eights, fours, 4):
        i0, i1, i2, i3 = rows[t], rows[t + 1], rows[t + 2], rows[t + 3]
        z0 = z1 = z2 = z3 = filled(W, 0, classes)
        for j in range(X.shape[1]):
            w = load(W, j, classes)
            z0 += X[i0, j] * w
            z1 += X[i1, j] * w
            z2 += X[i2, j] * w
            z3 += X[i3, j] * w
        store(Z, t, z0, classes)
        store(Z, t + 1, z1, classes)
        store(Z, t + 2, z2, classes)
        store(Z, t + 3, z3, classes)
    for t in range(fours, len(rows)):
        z0 = filled(W, 0, classes)
        for j in range(X.shape[1]):
            z0 += X[rows[t], j] * load(W, j, classes)
        store(Z, t, z0, classes)


def _pull_dense(X: Any, rows: Any, R: Any, G: Any, classes: Any) -> None:
    # G is read and written once for several rows: memory, not arithmetic, is the limit.
    eights = (len(rows) - len(rows) % 8) * holds_eight(G, classes)
    for t in range(0, eights, 8):
        i0, i1, i2, i3 = rows[t], rows[t + 1], rows[t + 2], rows[t + 3]
        i4, i5, i6, i7 = rows[t + 4], rows[t + 5], rows[t + 6], rows[t + 7]
        r0, r1 = load(R, t, classes), load(R, t + 1, classes)
        r2, r3 = load(R, t + 2, classes), load(R, t + 3, classes)
        r4, r5 = load(R, t + 4, classes), load(R, t + 5, classes)
        r6, r7 = load(R, t + 6, classes), load(R, t + 7, classes)
        for j in range(X.shape[1]):
            # Two sums, of which neither waits for the other.
            g = load(G, j, classes) + X[i0, j] * r0 + X[i1, j] * r1 + X[i2, j] * r2
            h = X[i3, j] * r3 + X[i4, j] * r4 + X[i5, j] * r5
            store(G, j, g + (h + X[i6, j] * r6 + X[i7, j] * r7), classes)
    fours = len(rows) - (len(rows) - eights) % 4
    for t in range(eights, fours, 4):
        i0, i1, i2, i3 = rows[t], rows[t + 1], rows[t + 2], rows[t + 3]
        r0, r1 = load(R, t, classes), load(R, t + 1, classes)
        r2, r3 = load(R, t + 2, classes), load(R, t + 3, classes)
        for j in range(X.shape[1]):
            g = load(G, j, classes) + X[i0, j] * r0 + X[i1, j] * r1
            store(G, j, g + X[i2, j] * r2 + X[i3, j] * r3, classes)
    for t in range(fours, len(rows)):
        r0 = load(R, t, classes)
        for j in range(X.shape[1]):
            store(G, j, load(G, j, classes) + X[rows[t], j] * r0, classes)
