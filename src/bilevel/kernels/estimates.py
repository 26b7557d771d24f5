"""A whole estimate of the hypergradient by batches in one call."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from bilevel.kernels.chains import contracting, descending, of_batch
from bilevel.kernels.kernel import kernel
from bilevel.kernels.lanes import load, store
from bilevel.kernels.products import copy, copy_back, laid
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
from bilevel.models.softmax.compiled.batches import add_cross, fill


@kernel
def implicit(
    data: Any,
    outer: Any,
    weights: Any,
    c: Any,
    rates: Any,
    rate: Any,
    scale: Any,
    summed: bool,
    W: Any,
    steady: Any,
    V: Any,
    crossed: Any,
    classes: Any,
    threads: int,
) -> None:
    """`descend`, the gradient of other data, `contract` from that on, and what it comes to.

    Args:
        data: X, labels, rows, starts and ends: as many batches as there are rates are those of
            steps, the last one is of `crossed`, and those in between are of the contraction.
        outer: X, labels and rows of the other data.
        weights: of the rows of X.
        scale, summed: V is scale times what the contraction comes to, or times its sum.
        W, steady: where the steps start, and where they come to.
        crossed: if there is room, σ' of the logits times the slopes along V is taken away from it.
    """
    _, _, rows, starts, ends = data
    s, cross = np.empty(len(rows), W.dtype), rows[starts[-1] : ends[-1]]
    fill(weights, rows, starts, ends, s)
    slopes = np.empty(len(cross), W.dtype)
    wide, left = np.empty((len(W), len(classes[1])), W.dtype), sums(W, classes, 1)
    copy(W, wide, 0, len(W), classes)
    whole, equal = np.empty_like(wide), np.empty(len(outer[2]), W.dtype)
    equal[:] = 1 / len(equal)
    given = s, laid(c, classes), rates, rate, scale, summed
    buffers = (
        room(W, classes, threads),
        room(W, classes, threads),
        sums(W, classes, threads),
        np.empty((threads, BLOCK), W.dtype),
    )
    vectors = wide, left, whole, slopes, np.empty((0, *W.shape), W.dtype)
    parallel(_implicit, (data, (outer, equal), given, vectors, buffers, classes), threads)
    copy_back(wide, steady, 0, len(W), classes)
    copy_back(left, V, 0, len(W), classes)
    if len(crossed):
        add_cross(weights.values, cross, slopes, -1, crossed)


@njit(nogil=True)
def _implicit(all_given: Any, me: int, size: int) -> None:
    data, (outer, equal), given, vectors, buffers, classes = all_given
    X, labels, rows, starts, ends = data
    s, c, rates, rate, scale, summed = given
    W, left, whole, slopes, path = vectors
    Ps, Rs, own, along = buffers
    D, p, last = len(rates), len(W), len(ends) - 1
    first, end = share(p, me, size)

    steps = X, rows, starts[:D], ends[:D], labels, s
    descending((steps, (c, rates, W, path), (Rs, own), classes), me, size)

    task = outer[0], outer[2], outer[1], equal, Ps[me], W, equal[:0]
    part = share(len(equal), me, size)
    accumulate(ERRORS, task, part, Rs[me], own[me * p : (me + 1) * p], classes)
    barrier(size)
    for j in range(first, end):
        g = taken(own, j, p, size, classes)
        store(left, j, g)
        store(whole, j, g)
    barrier(size)

    factors = X, rows, starts[D:last], ends[D:last], labels, s
    contracting((factors, (c, rate, W, left, whole), buffers, classes), me, size)
    for j in range(first, end):
        store(left, j, scale * load(whole if summed else left, j, classes))
    barrier(size)

    a0, b0 = of_batch(starts[last], ends[last], me, size)
    for a in range(a0, b0, BLOCK):
        b = min(b0, a + BLOCK)
        soften(X, rows[a:b], W, Ps[me], classes)
        residuals(SPREADS, X, rows[a:b], labels, s[a:b], Ps[me], left, along[me], Rs[me], classes)
        for i in range(b - a):
            slopes[a - starts[last] + i] = along[me, i]
