"""X y and X'c on some rows of a dense X, for vectors: one or two of them in a pass over the rows.

Features are taken by pieces of registers, and those behind the last whole piece one by one: what
LLVM makes of such loops depends on the code around them, and is up to five times slower.
"""

from __future__ import annotations

from typing import Any

from bilevel.kernels.kernel import inner
from bilevel.kernels.registers import count, filled, load, piece_of, store, total


@inner
def push(X: Any, rows: Any, y: Any, t: Any) -> None:
    """t_k = X[rows_k]'y."""
    piece, n = piece_of(y), len(y)
    whole = n - n % count(piece)
    for k in range(len(rows)):
        i = rows[k]
        found = filled(y, 0, piece)
        for j in range(0, whole, count(piece)):
            found += load(X, i * n + j, piece) * load(y, j, piece)
        rest = y.dtype.type(0)
        for j in range(whole, n):
            rest += X[i, j] * y[j]
        t[k] = total(found) + rest


@inner
def push_both(X: Any, rows: Any, y: Any, v: Any, t: Any, u: Any) -> None:
    """t_k = X[rows_k]'y and u_k = X[rows_k]'v."""
    piece, n = piece_of(y), len(y)
    whole = n - n % count(piece)
    for k in range(len(rows)):
        i = rows[k]
        one = other = filled(y, 0, piece)
        for j in range(0, whole, count(piece)):
            x = load(X, i * n + j, piece)
            one += x * load(y, j, piece)
            other += x * load(v, j, piece)
        of_y = of_v = y.dtype.type(0)
        for j in range(whole, n):
            of_y += X[i, j] * y[j]
            of_v += X[i, j] * v[j]
        t[k], u[k] = total(one) + of_y, total(other) + of_v


@inner
def pull(X: Any, rows: Any, c: Any, g: Any) -> None:
    """g += Σ_k c_k X[rows_k]."""
    piece, n, last = piece_of(g), len(g), len(rows) - len(rows) % 2
    whole = n - n % count(piece)
    for j in range(0, whole, count(piece)):
        # Two sums: in a single one, each addition would wait for the last.
        one, other = load(g, j, piece), filled(g, 0, piece)
        for k in range(0, last, 2):
            one += c[k] * load(X, rows[k] * n + j, piece)
            other += c[k + 1] * load(X, rows[k + 1] * n + j, piece)
        if last < len(rows):
            one += c[last] * load(X, rows[last] * n + j, piece)
        store(g, j, one + other, piece)
    for k in range(len(rows)):  # outside: a sum for each feature, and none waits for another
        for j in range(whole, n):
            g[j] += c[k] * X[rows[k], j]


@inner
def pull_both(X: Any, rows: Any, c: Any, d: Any, g: Any, h: Any) -> None:
    """g += Σ_k c_k X[rows_k] and h += Σ_k d_k X[rows_k]."""
    piece, n, last = piece_of(g), len(g), len(rows) - len(rows) % 2
    whole = n - n % count(piece)
    for j in range(0, whole, count(piece)):
        g0, h0 = load(g, j, piece), load(h, j, piece)
        g1 = h1 = filled(g, 0, piece)
        for k in range(0, last, 2):
            x, z = load(X, rows[k] * n + j, piece), load(X, rows[k + 1] * n + j, piece)
            g0 += c[k] * x
            h0 += d[k] * x
            g1 += c[k + 1] * z
            h1 += d[k + 1] * z
        if last < len(rows):
            x = load(X, rows[last] * n + j, piece)
            g0 += c[last] * x
            h0 += d[last] * x
        store(g, j, g0 + g1, piece)
        store(h, j, h0 + h1, piece)
    for k in range(len(rows)):  # outside: a sum for each feature, and none waits for another
        for j in range(whole, n):
            g[j] += c[k] * X[rows[k], j]
            h[j] += d[k] * X[rows[k], j]
