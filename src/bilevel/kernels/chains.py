"""Whole loops in one call: gradient steps forwards and backwards, or Neumann factors.

Batch t is made of rows[starts[t]:ends[t]]; `s` goes with `rows`. `c` holds the penalty's 2c_j for
each feature j, or 2c_jk for each weight. W and r are (p, C).

Threads share the rows of a batch, then the features, and wait for each other in between.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from bilevel.kernels.kernel import kernel
from bilevel.kernels.lanes import load, store
from bilevel.kernels.products import coefficient, copy, copy_back, laid, pull
from bilevel.kernels.softmax import (
    BLOCK,
    ERRORS,
    SPREADS,
    accumulate,
    residuals,
    room,
    soften,
    sums,
    taken,
)
from bilevel.kernels.team import barrier, parallel, share


@kernel
def descend(
    X: Any,
    rows: Any,
    starts: Any,
    ends: Any,
    labels: Any,
    s: Any,
    c: Any,
    rates: Any,
    W: Any,
    path: Any,
    classes: Any,
    threads: int,
) -> None:
    """W ← W − α_t (Σ_i s_i X_i'(P_i − Y_i) + 2c∘W), batch after batch.

    If `path` has room, the W before step t goes to path[t], and the last one behind them.
    """
    wide = np.empty((len(W), len(classes[1])), W.dtype)
    copy(W, wide, 0, len(W), classes)
    data = X, rows, starts, ends, labels, s
    rest = laid(c, classes), rates, wide, path
    buffers = room(W, classes, threads), sums(W, classes, threads)
    parallel(descending, (data, rest, buffers, classes), threads)
    copy_back(wide, W, 0, len(W), classes)


@njit(nogil=True)
def descending(given: Any, me: int, size: int) -> None:
    data, rest, buffers, classes = given
    X, rows, starts, ends, labels, s = data
    c, rates, W, path = rest
    R, own = buffers
    p = len(W)
    mine, nothing = own[me * p : (me + 1) * p], s[:0]
    first, last = share(p, me, size)
    task = X, rows, labels, s, R[me], W, nothing
    for t in range(len(ends)):
        if len(path):
            copy_back(W, path[t], first, last, classes)
        part = of_batch(starts[t], ends[t], me, size)
        accumulate(ERRORS, task, part, R[me], mine, classes)
        barrier(size)
        for j in range(first, last):
            kept = 1 - rates[t] * coefficient(c, j, classes)
            g = taken(own, j, p, size, classes)
            store(W, j, kept * load(W, j, classes) - rates[t] * g)
        barrier(size)
    if len(path):
        copy_back(W, path[len(ends)], first, last, classes)


@kernel
def contract(
    X: Any,
    rows: Any,
    starts: Any,
    ends: Any,
    labels: Any,
    s: Any,
    c: Any,
    rate: Any,
    W: Any,
    r: Any,
    total: Any,
    classes: Any,
    threads: int,
) -> None:
    """r ← r − η H(B_t) r, batch after batch, and each added to `total`."""
    left, whole = np.empty((2, len(W), len(classes[1])), W.dtype)
    copy(r, left, 0, len(r), classes)
    copy(total, whole, 0, len(r), classes)
    data = X, rows, starts, ends, labels, s
    rest = laid(c, classes), rate, laid(W, classes), left, whole
    slopes = np.empty((threads, BLOCK), W.dtype)
    buffers = (
        room(W, classes, threads),
        room(W, classes, threads),
        sums(W, classes, threads),
        slopes,
    )
    parallel(contracting, (data, rest, buffers, classes), threads)
    copy_back(left, r, 0, len(r), classes)
    copy_back(whole, total, 0, len(r), classes)


@njit(nogil=True)
def contracting(given: Any, me: int, size: int) -> None:
    data, rest, buffers, classes = given
    X, rows, starts, ends, labels, s = data
    c, rate, W, r, whole = rest
    Ps, Rs, own, slopes = buffers
    p = len(W)
    mine, P, R, along = own[me * p : (me + 1) * p], Ps[me], Rs[me], slopes[me]
    first, last = share(p, me, size)
    for t in range(len(ends)):
        a0, b0 = of_batch(starts[t], ends[t], me, size)
        for a in range(a0, b0, BLOCK):
            b = min(b0, a + BLOCK)
            soften(X, rows[a:b], W, P, classes)
            residuals(SPREADS, X, rows[a:b], labels, s[a:b], P, r, along, R, classes)
            pull(X, rows[a:b], R, mine, classes)
        barrier(size)
        for j in range(first, last):
            kept = 1 - rate * coefficient(c, j, classes)
            left = kept * load(r, j, classes) - rate * taken(own, j, p, size, classes)
            store(r, j, left)
            store(whole, j, load(whole, j, classes) + left)
        barrier(size)


@kernel
def retrace(
    X: Any,
    rows: Any,
    starts: Any,
    ends: Any,
    labels: Any,
    s: Any,
    c: Any,
    rates: Any,
    path: Any,
    r: Any,
    total: Any,
    along: Any,
    across: Any,
    classes: Any,
    threads: int,
) -> None:
    """Back over the steps from W_t = path[t]: r ← r − α_t H_t r, the last step first.

    Before it, total += α_t r; along += α_t times the slopes along r over the batch size, where
    each row of X has its place; and across += α_t W_t∘r.
    """
    shape = len(r), len(classes[1])
    left, wide, whole, crossed = np.empty((4, *shape), r.dtype)
    copy(r, left, 0, len(r), classes)
    copy(total, whole, 0, len(r), classes)
    copy(across, crossed, 0, len(r), classes)
    data = X, rows, starts, ends, labels, s
    rest = laid(c, classes), rates, path, left, wide, whole, along, crossed
    slopes = np.empty((threads, BLOCK), r.dtype)
    buffers = (
        room(r, classes, threads),
        room(r, classes, threads),
        sums(r, classes, threads),
        slopes,
    )
    parallel(_retrace, (data, rest, buffers, classes), threads)
    copy_back(left, r, 0, len(r), classes)
    copy_back(whole, total, 0, len(r), classes)
    copy_back(crossed, across, 0, len(r), classes)


@njit(nogil=True)
def _retrace(given: Any, me: int, size: int) -> None:
    data, rest, buffers, classes = given
    X, rows, starts, ends, labels, s = data
    c, rates, path, r, W, total, along, across = rest
    Ps, Rs, own, slopes = buffers
    p = len(W)
    mine, P, R, slope = own[me * p : (me + 1) * p], Ps[me], Rs[me], slopes[me]
    first, last = share(p, me, size)
    for t in range(len(ends) - 1, -1, -1):
        copy(path[t], W, first, last, classes)
        barrier(size)
        a0, b0 = of_batch(starts[t], ends[t], me, size)
        weight = rates[t] / (ends[t] - starts[t])
        for a in range(a0, b0, BLOCK):
            b = min(b0, a + BLOCK)
            soften(X, rows[a:b], W, P, classes)
            residuals(SPREADS, X, rows[a:b], labels, s[a:b], P, r, slope, R, classes)
            pull(X, rows[a:b], R, mine, classes)
            for i in range(b - a):
                along[rows[a + i]] += weight * slope[i]
        barrier(size)
        for j in range(first, last):
            before = rates[t] * load(r, j, classes)
            store(total, j, load(total, j, classes) + before)
            store(across, j, load(across, j, classes) + before * load(W, j, classes))
            kept = 1 - rates[t] * coefficient(c, j, classes)
            g = taken(own, j, p, size, classes)
            store(r, j, kept * load(r, j, classes) - rates[t] * g)
    # r is whole again at the next step's first barrier, or when the team ends.


@njit(nogil=True)
def of_batch(start: int, end: int, me: int, size: int) -> tuple[int, int]:
    """This thread's rows of a batch."""
    a, b = share(end - start, me, size)
    return start + a, start + b
