"""Softmax regression on some rows: derivatives that read X once, a block at a time.

The rows of a block stay in the cache between X W and X'R. `s` holds a weight for each of `rows`,
over the batch size, P their probabilities, and c the penalty's 2c_j for each feature j, or 2c_jk
for each weight. W, V and G are (p, C); P and R are laid out as `classes` says. Threads share the
rows, and then the features.
"""

from __future__ import annotations

from math import log
from typing import Any

import numpy as np
from numba import njit

from bilevel.kernels.kernel import kernel
from bilevel.kernels.lanes import exp, laid_out, largest, load, one_hot, store, total, zeros
from bilevel.kernels.products import coefficient, dot, laid, pull, push
from bilevel.kernels.team import barrier, parallel, share

BLOCK = 128
ERRORS, ERRORS_AT, SPREADS = 0, 1, 2  # see `residuals`


@kernel
def probabilities(X: Any, rows: Any, W: Any, P: Any, classes: Any, threads: int) -> None:
    """P_t = softmax(X_t W)."""
    parallel(_probabilities, (X, rows, laid(W, classes), P, classes), threads)


@njit(nogil=True)
def _probabilities(given: Any, me: int, size: int) -> None:
    X, rows, W, P, classes = given
    a, b = share(len(rows), me, size)
    soften(X, rows[a:b], W, P[a:b], classes)


@kernel
def losses(X: Any, rows: Any, labels: Any, W: Any, out: Any, classes: Any, threads: int) -> None:
    """out_t = log Σ_k exp(Z_tk) − Z_tb with Z = X W and the row's label b."""
    R = room(W, classes, threads)
    parallel(_losses, (X, rows, labels, laid(W, classes), R, out, classes), threads)


@njit(nogil=True)
def _losses(given: Any, me: int, size: int) -> None:
    X, rows, labels, W, R, out, classes = given
    first, last = share(len(rows), me, size)
    Z = R[me]
    for a in range(first, last, BLOCK):
        some = rows[a : min(last, a + BLOCK)]
        push(X, some, W, Z, classes)
        for t in range(len(some)):
            z = load(Z, t, classes)
            z = z - largest(z)
            out[a + t] = log(total(exp(z))) - total(z * one_hot(z, labels[some[t]]))


@kernel
def slopes(
    X: Any, rows: Any, labels: Any, P: Any, V: Any, out: Any, classes: Any, threads: int
) -> None:
    """out_t = (P_t − Y_t)·U_t with U = X V: how the loss of a row changes along V."""
    R = room(V, classes, threads)
    parallel(_slopes, (X, rows, labels, P, laid(V, classes), R, out, classes), threads)


@njit(nogil=True)
def _slopes(given: Any, me: int, size: int) -> None:
    X, rows, labels, P, V, R, out, classes = given
    first, last = share(len(rows), me, size)
    U = R[me]
    for a in range(first, last, BLOCK):
        some = rows[a : min(last, a + BLOCK)]
        push(X, some, V, U, classes)
        for t in range(len(some)):
            p = load(P, a + t, classes)
            out[a + t] = total((p - one_hot(p, labels[some[t]])) * load(U, t, classes))


@kernel
def derivative(
    kind: int,
    X: Any,
    rows: Any,
    labels: Any,
    s: Any,
    P: Any,
    V: Any,
    along: Any,
    c: Any,
    G: Any,
    classes: Any,
    threads: int,
) -> None:
    """G = X'R + c∘V with R of `residuals`; each thread sums up its own, then they are added."""
    R, own, at = room(V, classes, threads), sums(V, classes, threads), laid(V, classes)
    task = X, rows, labels, s, P, at, along
    parallel(_derivative, (kind, task, laid(c, classes), R, own, G, classes), threads)


@njit(nogil=True)
def _derivative(given: Any, me: int, size: int) -> None:
    kind, task, c, R, own, G, classes = given
    rows, V = task[1], task[5]
    p = len(V)
    mine = own[me * p : (me + 1) * p]
    accumulate(kind, task, share(len(rows), me, size), R[me], mine, classes)
    barrier(size)
    first, last = share(p, me, size)
    for j in range(first, last):
        g = taken(own, j, p, size, classes) + coefficient(c, j, classes) * load(V, j, classes)
        store(G, j, laid_out(g, (classes[0], classes[0])))


@kernel
def wide_derivative(
    kind: int,
    X: Any,
    rows: Any,
    labels: Any,
    s: Any,
    P: Any,
    V: Any,
    along: Any,
    c: Any,
    G: Any,
    transposed: Any,
    cuts: Any,
    classes: Any,
) -> None:
    """The same for many features: R of all rows first, then feature by feature with X'.

    Thread i has the features from cuts[i] to cuts[i + 1]. G may be V.
    """
    R = np.empty((len(rows), len(classes[1])), V.dtype)
    task = X, rows, labels, s, P, V, along
    parallel(_wide_derivative, (kind, task, c, R, transposed, cuts, G, classes), len(cuts) - 1)


@njit(nogil=True)
def _wide_derivative(given: Any, me: int, size: int) -> None:
    kind, task, c, R, transposed, cuts, G, classes = given
    X, rows, labels, s, P, V, along = task
    a, b = share(len(rows), me, size)
    residuals(kind, X, rows[a:b], labels, s[a:b], P[a:], V, along[a:], R[a:b], classes)
    barrier(size)
    for part in range(me, len(cuts) - 1, size):
        push_and_add(transposed, cuts[part], cuts[part + 1], R, c, V, G, classes)


@njit(nogil=True)
def soften(X: Any, rows: Any, W: Any, P: Any, classes: Any) -> None:
    """P_t = softmax(X_t W), in one thread."""
    push(X, rows, W, P, classes)
    for t in range(len(rows)):
        z = load(P, t, classes)
        e = exp(z - largest(z))
        store(P, t, laid_out(e * (1 / total(e)), classes))


@njit(nogil=True)
def residuals(
    kind: int,
    X: Any,
    rows: Any,
    labels: Any,
    s: Any,
    P: Any,
    V: Any,
    along: Any,
    R: Any,
    classes: Any,
) -> None:
    """What X' is multiplied with, in one thread.

    ERRORS: R_t = s_t (softmax(X_t V) − Y_t). ERRORS_AT: R_t = s_t (P_t − Y_t). SPREADS:
    R_t = s_t (P_t∘U_t − P_t (P_t·U_t)) with U = X V, and the slopes along V on the way.
    """
    if kind == SPREADS:
        push(X, rows, V, R, classes)
        for t in range(len(rows)):
            p, u = load(P, t, classes), load(R, t, classes)
            mean = total(p * u)
            along[t] = mean - total(u * one_hot(u, labels[rows[t]]))
            store(R, t, s[t] * (p * u - mean * p))
        return
    if kind == ERRORS:
        soften(X, rows, V, R, classes)
    for t in range(len(rows)):
        p = load(R, t, classes) if kind == ERRORS else load(P, t, classes)
        store(R, t, s[t] * (p - one_hot(p, labels[rows[t]])))


@njit(nogil=True)
def accumulate(kind: int, task: Any, part: Any, R: Any, G: Any, classes: Any) -> None:
    """G += X'R on the rows from part[0] to part[1], block by block, in one thread."""
    X, rows, labels, s, P, V, along = task
    first, last = part
    for a in range(first, last, BLOCK):
        b = min(last, a + BLOCK)
        residuals(kind, X, rows[a:b], labels, s[a:b], P[a:], V, along[a:], R, classes)
        pull(X, rows[a:b], R, G, classes)


@njit(nogil=True)
def taken(own: Any, j: int, p: int, size: int, classes: Any) -> Any:
    """The sum of row j over the threads, which begin anew from zero."""
    g = load(own, j, classes)
    store(own, j, zeros(own, classes))
    for i in range(1, size):
        g += load(own, i * p + j, classes)
        store(own, i * p + j, zeros(own, classes))
    return g


@njit(nogil=True)
def push_and_add(
    X: Any, first: int, last: int, R: Any, c: Any, V: Any, G: Any, classes: Any
) -> None:
    """G_j = X_j R + c_j V_j."""
    for j in range(first, last):
        g = dot(X[0], X[1], X[2], j, R, classes)
        store(G, j, g + coefficient(c, j, classes) * load(V, j, classes))


@njit(nogil=True)
def room(like: Any, classes: Any, threads: int) -> Any:
    """A block of rows for each thread."""
    return np.empty((threads, BLOCK, len(classes[1])), like.dtype)


@njit(nogil=True)
def sums(W: Any, classes: Any, threads: int) -> Any:
    """Matrices as W for all threads, one below the other, of zeros."""
    return np.zeros((threads * len(W), len(classes[1])), W.dtype)
