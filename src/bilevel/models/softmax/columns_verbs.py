"""Softmax regression in array code: the verbs of a model with a column for each class.

The products are those of the kernels for whole loops (`bilevel.kernels.products`), on registers
that hold a number for each class; a block of rows stays in the cache between X W and X'R.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bilevel.kernels.array_code import array_code
from bilevel.kernels.products import pull, push
from bilevel.kernels.registers import closely, filled, load, of_sizes, store, total
from bilevel.kernels.softmax import BLOCK, exponentials
from bilevel.models.softmax.arrays import Data, clear, kind_of, weight

# W, V and their sums G and H in rows of whole registers, and two blocks of rows.
Kind = kind_of(__name__, "W", "V", "G", "H", "P", "U")


def room(data: Data) -> list[Any]:
    """To work in."""
    lengths, width = [data.X.shape[1]] * 4 + [BLOCK] * 2, len(data.sizes[1])
    return [np.zeros((length, width), data.X.dtype) for length in lengths]


@array_code
def _laid_out(vector: Any, here: Any, sums: Any, classes: Any) -> None:
    """A copy in rows of whole registers; and its sums begin at zero."""
    zero = filled(here, 0, classes)
    for j in range(len(here)):
        store(here, j, load(vector, j, closely(classes)), classes)
        store(sums, j, zero, classes)


@array_code
def _laid_back(here: Any, vector: Any, classes: Any) -> None:
    for j in range(len(here)):
        store(vector, j, load(here, j, classes), closely(classes))


@array_code
def _predicted(P: Any, t: int, classes: Any) -> Any:
    """The softmax of a row."""
    e, whole, _ = exponentials(load(P, t, classes))
    return e * (1 / whole)


def _inner(p: Any, x: Any, y: Any, v: Any, rows: Any, g: Any, Hv: Any, Jv: Any) -> None:
    classes, X, P, U = of_sizes(p.sizes), p.X, p.P, p.U
    one = y.dtype.type(1)
    scale = one / y.dtype.type(len(rows))
    _laid_out(y, p.W, p.G, classes)
    _laid_out(v, p.V, p.H, classes)
    clear(Jv)
    for a in range(0, len(rows), BLOCK):
        some = rows[a : a + BLOCK]
        push(X, some, p.W, P, classes)
        push(X, some, p.V, U, classes)
        for t in range(len(some)):
            i, s = some[t], weight(p, x, some[t])
            q, u = _predicted(P, t, classes), load(U, t, classes)
            mean = total(q * u)
            if p.logits > 0:
                Jv[i] += s * (one - s) * scale * (mean - U[t, p.b[i]])
            s *= scale
            store(U, t, s * (q * u - mean * q), classes)
            store(P, t, s * q, classes)
            P[t, p.b[i]] -= s
        pull(X, some, P, p.G, classes)
        pull(X, some, U, p.H, classes)
    _laid_back(p.G, g, classes)
    _laid_back(p.H, Hv, classes)


@array_code
def _errors(X: Any, b: Any, weights: Any, p: Any, y: Any, rows: Any, g: Any) -> None:
    """Σ_i s_i X_i'(P_i − Y_i) over the number of rows; s_i is 1 where `weights` is None."""
    classes, P = of_sizes(p.sizes), p.P
    scale = y.dtype.type(1) / y.dtype.type(len(rows))
    _laid_out(y, p.W, p.G, classes)
    for a in range(0, len(rows), BLOCK):
        some = rows[a : a + BLOCK]
        push(X, some, p.W, P, classes)
        for t in range(len(some)):
            s = scale
            if weights is not None:
                s *= weight(p, weights, some[t])
            store(P, t, s * _predicted(P, t, classes), classes)
            P[t, b[some[t]]] -= s
        pull(X, some, P, p.G, classes)
    _laid_back(p.G, g, classes)


def _slope(p: Any, x: Any, y: Any, rows: Any, g: Any) -> None:
    _errors(p.X, p.b, x, p, y, rows, g)


def _outer(p: Any, x: Any, y: Any, rows: Any, f_x: Any, f_y: Any) -> None:
    clear(f_x)
    _errors(p.X_outer, p.b_outer, None, p, y, rows, f_y)


def _hessian(p: Any, x: Any, y: Any, v: Any, rows: Any, Hv: Any) -> None:
    classes, P, U = of_sizes(p.sizes), p.P, p.U
    scale = y.dtype.type(1) / y.dtype.type(len(rows))
    _laid_out(y, p.W, p.G, classes)
    _laid_out(v, p.V, p.H, classes)
    for a in range(0, len(rows), BLOCK):
        some = rows[a : a + BLOCK]
        push(p.X, some, p.W, P, classes)
        push(p.X, some, p.V, U, classes)
        for t in range(len(some)):
            q, u = _predicted(P, t, classes), load(U, t, classes)
            s = scale * weight(p, x, some[t])
            store(U, t, s * (q * u - total(q * u) * q), classes)
        pull(p.X, some, U, p.H, classes)
    _laid_back(p.H, Hv, classes)


def _cross(p: Any, x: Any, y: Any, v: Any, rows: Any, Jv: Any) -> None:
    clear(Jv)
    classes, P, U, one = of_sizes(p.sizes), p.P, p.U, y.dtype.type(1)
    scale = one / y.dtype.type(len(rows))
    if p.logits > 0:
        _laid_out(y, p.W, p.G, classes)
        _laid_out(v, p.V, p.H, classes)
    # Where x weighs no rows, they do not depend on it.
    for a in range(0, len(rows) if p.logits > 0 else 0, BLOCK):
        some = rows[a : a + BLOCK]
        push(p.X, some, p.W, P, classes)
        push(p.X, some, p.V, U, classes)
        for t in range(len(some)):
            i, s = some[t], weight(p, x, some[t])
            mean = total(_predicted(P, t, classes) * load(U, t, classes))
            Jv[i] += s * (one - s) * scale * (mean - U[t, p.b[i]])


VERBS = (_inner, _slope, _hessian, _cross, _outer)
