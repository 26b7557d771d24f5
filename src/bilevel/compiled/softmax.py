"""Softmax regression on some rows: derivatives that read X once, a block at a time.

The rows of a block stay in the cache between X W and X'R. `s` holds a weight for each of `rows`,
over the batch size; P their probabilities. Arrays of rows (W, V, G, P, R) are laid out as `classes`
says; zeros behind their last class stay zeros. The penalty is left to the caller.
"""

from __future__ import annotations

from math import log
from typing import Any

import numpy as np

from bilevel.compiled.kernel import kernel
from bilevel.compiled.lanes import exp, largest, load, one_hot, store, total, trim
from bilevel.compiled.products import coefficient, pull, push

_BLOCK = 128


@kernel
def probabilities(X: Any, rows: Any, W: Any, P: Any, classes: Any) -> None:
    """P_t = softmax(X_t W)."""
    push(X, rows, W, P, classes)
    for t in range(len(rows)):
        z = load(P, t, classes)
        e = exp(z - largest(z))
        store(P, t, trim(e * (1 / total(e))))


@kernel
def errors(X: Any, rows: Any, labels: Any, s: Any, W: Any, R: Any, classes: Any) -> None:
    """R_t = s_t (P_t − Y_t)."""
    probabilities(X, rows, W, R, classes)
    errors_at(X, rows, labels, s, R, R, classes)


@kernel
def errors_at(X: Any, rows: Any, labels: Any, s: Any, P: Any, R: Any, classes: Any) -> None:
    """The same, where P is known."""
    for t in range(len(rows)):
        p = load(P, t, classes)
        store(R, t, s[t] * (p - one_hot(p, labels[rows[t]])))


@kernel
def spreads(
    X: Any, rows: Any, labels: Any, P: Any, s: Any, V: Any, along: Any, R: Any, classes: Any
) -> None:
    """R_t = s_t (P_t∘U_t − P_t (P_t·U_t)) with U = X V; and the slopes along V on the way."""
    push(X, rows, V, R, classes)
    for t in range(len(rows)):
        p, u = load(P, t, classes), load(R, t, classes)
        mean = total(p * u)
        along[t] = mean - total(u * one_hot(u, labels[rows[t]]))
        store(R, t, s[t] * (p * u - mean * p))


@kernel
def slopes(X: Any, rows: Any, labels: Any, P: Any, V: Any, out: Any, classes: Any) -> None:
    """out_t = (P_t − Y_t)·U_t with U = X V: how the loss of a row changes along V."""
    R = np.empty((_BLOCK, len(classes[1])), V.dtype)
    for a in range(0, len(rows), _BLOCK):
        some = rows[a : a + _BLOCK]
        push(X, some, V, R, classes)
        for t in range(len(some)):
            p = load(P, a + t, classes)
            out[a + t] = total((p - one_hot(p, labels[some[t]])) * load(R, t, classes))


@kernel
def gradient(X: Any, rows: Any, labels: Any, s: Any, W: Any, G: Any, classes: Any) -> None:
    """G += Σ_t s_t X_t'(P_t − Y_t)."""
    R = np.empty((_BLOCK, len(classes[1])), W.dtype)
    for a in range(0, len(rows), _BLOCK):
        some = rows[a : a + _BLOCK]
        errors(X, some, labels, s[a:], W, R, classes)
        pull(X, some, R, G, classes)


@kernel
def product(
    X: Any, rows: Any, labels: Any, P: Any, s: Any, V: Any, along: Any, G: Any, classes: Any
) -> None:
    """G += X'R with R of `spreads`: the Hessian times V."""
    R = np.empty((_BLOCK, len(classes[1])), V.dtype)
    for a in range(0, len(rows), _BLOCK):
        some = rows[a : a + _BLOCK]
        spreads(X, some, labels, P[a:], s[a:], V, along[a:], R, classes)
        pull(X, some, R, G, classes)


@kernel
def losses(X: Any, rows: Any, labels: Any, W: Any, out: Any, classes: Any) -> None:
    """out_t = log Σ_k exp(Z_tk) − Z_tb with Z = X W and the row's label b."""
    R = np.empty((_BLOCK, len(classes[1])), W.dtype)
    for a in range(0, len(rows), _BLOCK):
        some = rows[a : a + _BLOCK]
        push(X, some, W, R, classes)
        for t in range(len(some)):
            z = load(R, t, classes)
            top = largest(z)
            z = z - top
            out[a + t] = log(total(exp(z))) - total(z * one_hot(z, labels[some[t]]))


@kernel
def gradient_at(X: Any, rows: Any, labels: Any, s: Any, P: Any, G: Any, classes: Any) -> None:
    """`gradient`, where P is known."""
    R = np.empty((_BLOCK, len(classes[1])), P.dtype)
    for a in range(0, len(rows), _BLOCK):
        some = rows[a : a + _BLOCK]
        errors_at(X, some, labels, s[a:], P[a:], R, classes)
        pull(X, some, R, G, classes)


@kernel
def products(X: Any, rows: Any, R: Any, c: Any, V: Any, G: Any, classes: Any) -> None:
    """G_t = X_t R + c_t V_t: with X' for X, feature by feature, what others find row by row."""
    push(X, rows, R, G, classes)
    for t in range(len(rows)):
        store(G, t, load(G, t, classes) + coefficient(c, t, classes) * load(V, t, classes))
