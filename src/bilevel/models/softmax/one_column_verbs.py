"""Linear models with one column in array code: the verbs of logistic and squared losses.

For each row, t = a'w and u = a'v give its slope and curvature, and with them its share of ∇y g and
Hv: one pass over the rows for all. A block of rows stays in the cache between the two products.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bilevel.kernels.array_code import array_code
from bilevel.kernels.features import pull, pull_both, push, push_both
from bilevel.kernels.softmax import BLOCK
from bilevel.models.softmax.arrays import Data, clear, kind_of, weight

Kind = kind_of(__name__, "t", "u")  # two numbers for each row of a block


def room(data: Data) -> list[Any]:
    """To work in."""
    return [np.zeros(BLOCK, data.X.dtype) for _ in range(2)]


@array_code
def _slopes(b: Any, kind: int, rows: Any, t: Any, scale: Any) -> None:
    """t_k becomes the derivative of row k's loss by it, times the scale."""
    one = t.dtype.type(1)
    for k in range(len(rows)):
        predicted = t[k] if kind == 1 else one / (one + np.exp(-t[k]))
        t[k] = scale * (predicted - b[rows[k]])


@array_code
def _curvatures(kind: int, t: Any, u: Any, count: int, scale: Any) -> None:
    """u_k becomes the second derivative of row k's loss by t_k, times u_k and the scale."""
    one = t.dtype.type(1)
    for k in range(count):
        if kind == 0:
            q = one / (one + np.exp(-t[k]))
            u[k] *= q * (one - q)
        u[k] *= scale


@array_code
def _weigh(p: Any, x: Any, rows: Any, t: Any) -> None:
    if p.logits + len(p.weights) > 0:
        for k in range(len(rows)):
            t[k] *= weight(p, x, rows[k])


@array_code
def _cross_of(p: Any, x: Any, rows: Any, slopes: Any, u: Any, Jv: Any) -> None:
    """Of the rows that x weighs."""
    for k in range(len(rows)):
        s = weight(p, x, rows[k])
        Jv[rows[k]] += s * (x.dtype.type(1) - s) * slopes[k] * u[k]


def _inner(p: Any, x: Any, y: Any, v: Any, rows: Any, g: Any, Hv: Any, Jv: Any) -> None:
    t, u, one = p.t, p.u, y.dtype.type(1)
    scale = one / y.dtype.type(len(rows))
    clear(g)
    clear(Hv)
    clear(Jv)
    for a in range(0, len(rows), BLOCK):
        some = rows[a : a + BLOCK]
        push_both(p.X, some, y, v, t, u)
        for k in range(len(some)):
            # Here in one, for the sake of a single exponential.
            predicted, second = t[k], one
            if p.loss == 0:
                predicted = one / (one + np.exp(-t[k]))
                second = predicted * (one - predicted)
            s, of_loss = weight(p, x, some[k]), scale * (predicted - p.b[some[k]])
            if p.logits > 0:
                Jv[some[k]] += s * (one - s) * of_loss * u[k]
            t[k] = s * of_loss
            u[k] *= s * scale * second
        pull_both(p.X, some, t, u, g, Hv)


def _slope(p: Any, x: Any, y: Any, rows: Any, g: Any) -> None:
    t, scale = p.t, y.dtype.type(1) / y.dtype.type(len(rows))
    clear(g)
    for a in range(0, len(rows), BLOCK):
        some = rows[a : a + BLOCK]
        push(p.X, some, y, t)
        _slopes(p.b, p.loss, some, t, scale)
        _weigh(p, x, some, t)
        pull(p.X, some, t, g)


def _hessian(p: Any, x: Any, y: Any, v: Any, rows: Any, Hv: Any) -> None:
    t, u, scale = p.t, p.u, y.dtype.type(1) / y.dtype.type(len(rows))
    clear(Hv)
    for a in range(0, len(rows), BLOCK):
        some = rows[a : a + BLOCK]
        push_both(p.X, some, y, v, t, u)
        _curvatures(p.loss, t, u, len(some), scale)
        _weigh(p, x, some, u)
        pull(p.X, some, u, Hv)


def _cross(p: Any, x: Any, y: Any, v: Any, rows: Any, Jv: Any) -> None:
    clear(Jv)
    t, u, scale = p.t, p.u, y.dtype.type(1) / y.dtype.type(len(rows))
    # Where x weighs no rows, they do not depend on it.
    for a in range(0, len(rows) if p.logits > 0 else 0, BLOCK):
        some = rows[a : a + BLOCK]
        push_both(p.X, some, y, v, t, u)
        _slopes(p.b, p.loss, some, t, scale)
        _cross_of(p, x, some, t, u, Jv)


def _outer(p: Any, x: Any, y: Any, rows: Any, f_x: Any, f_y: Any) -> None:
    t, scale = p.t, y.dtype.type(1) / y.dtype.type(len(rows))
    clear(f_x)
    clear(f_y)
    for a in range(0, len(rows), BLOCK):
        some = rows[a : a + BLOCK]
        push(p.X_outer, some, y, t)
        _slopes(p.b_outer, p.loss, some, t, scale)
        pull(p.X_outer, some, t, f_y)


VERBS = (_inner, _slope, _hessian, _cross, _outer)
