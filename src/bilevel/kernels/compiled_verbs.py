"""The verbs of array code as compiled code has them: loops over a model's arrays.

`text`, `move`, `kind` and the names of a model's functions are placeholders here. When a loop is
joined (`bilevel.kernels.stretches`), they are bound to the method, to x's update and to the model.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bilevel.kernels import array_code
from bilevel.kernels.array_code import Function, ridged


def unbound(*given: Any) -> Any:
    """What the names below stand for until a loop is joined."""


text = move = kind = unbound
of_inner = of_slope = of_hessian = of_cross = of_outer = of_ridge = add_ridge = unbound
NAMES = [name for name, value in globals().items() if value is unbound][1:]  # as in `Known`


# The oracle of these functions is of a model's `kind`.


def _compiled(verb: Function) -> Function:
    """What a verb of `array_code` is inside compiled code."""

    def add(function: Function) -> Function:
        array_code.written[verb] = function
        return function

    return add


@_compiled(array_code.inner)
def _inner(oracle: Any, x: Any, y: Any, v: Any, rows: Any) -> Any:
    g, Hv, Jv = oracle.g, oracle.Hv, oracle.Jv
    of_inner(oracle, x, y, v, rows, g, Hv, Jv)
    return ridged(oracle, x, y, v, g, Hv, Jv)


@_compiled(array_code.sampled)
def _sampled(oracle: Any, x: Any, y: Any, v: Any, rows: Any) -> Any:
    g, Hv, Jv = oracle.g, oracle.Hv, oracle.Jv
    of_inner(oracle, x, y, v, rows, g, Hv, Jv)
    return g, Hv, Jv


@_compiled(array_code.ridged)
def _ridged(oracle: Any, x: Any, y: Any, v: Any, g: Any, Hv: Any, Jv: Any) -> Any:
    c = oracle.c
    for a in range(len(y)):
        g[a] += c[a] * y[a]
        Hv[a] += c[a] * v[a]
    add_ridge(oracle, c, y, v, Jv)
    return g, Hv, Jv


@_compiled(array_code.slope)
def _slope(oracle: Any, x: Any, y: Any, rows: Any) -> Any:
    g, c = oracle.g, oracle.c
    of_slope(oracle, x, y, rows, g)
    for a in range(len(y)):
        g[a] += c[a] * y[a]
    return g


@_compiled(array_code.hessian)
def _hessian(oracle: Any, x: Any, y: Any, v: Any, rows: Any) -> Any:
    Hv, c = oracle.Hv, oracle.c
    of_hessian(oracle, x, y, v, rows, Hv)
    for a in range(len(y)):
        Hv[a] += c[a] * v[a]
    return Hv


@_compiled(array_code.cross)
def _cross(oracle: Any, x: Any, y: Any, v: Any, rows: Any) -> Any:
    Jv = oracle.Jv
    of_cross(oracle, x, y, v, rows, Jv)
    add_ridge(oracle, oracle.c, y, v, Jv)
    return Jv


@_compiled(array_code.outer)
def _outer(oracle: Any, x: Any, y: Any, rows: Any) -> Any:
    f_x, f_y = oracle.f_x, oracle.f_y
    of_outer(oracle, x, y, rows, f_x, f_y)
    return f_x, f_y


@_compiled(array_code.pull)
def _pull(oracle: Any, x: Any, covector: Any) -> Any:
    return covector


@_compiled(array_code.number)
def _number(numbers: Any, k: int, j: int) -> Any:
    return numbers[k, j]


@_compiled(array_code.batch)
def _batch(drawn: Any, k: int) -> Any:
    return drawn.rows[drawn.starts[k, 0] : drawn.stops[k, 0]]


@_compiled(array_code.count)
def _count(drawn: Any, k: int) -> Any:
    return drawn.counts[k]


@_compiled(array_code.batch_of)
def _batch_of(drawn: Any, k: int, t: int) -> Any:
    return drawn.rows[drawn.starts[k, t] : drawn.stops[k, t]]


@_compiled(array_code.block)
def _block(drawn: Any, k: int) -> Any:
    rows = drawn.rows[drawn.starts[k, 0] : drawn.stops[k, 0]]
    return rows, drawn.numbers[k], drawn.shares[k]


# Loops, not expressions of whole arrays: those allocate, and numba takes seconds to compile them.


@_compiled(array_code.own)
def _own(vector: Any) -> Any:
    found = np.empty_like(vector)
    for a in range(len(vector)):
        found[a] = vector[a]
    return found


@_compiled(array_code.minus)
def _minus(a: Any, b: Any) -> Any:
    for i in range(len(a)):
        a[i] -= b[i]
    return a


@_compiled(array_code.plus)
def _plus(a: Any, b: Any) -> Any:
    for i in range(len(a)):
        a[i] += b[i]
    return a


@_compiled(array_code.moved)
def _moved(point: Any, direction: Any, rate: Any) -> Any:
    for a in range(len(point)):
        point[a] -= rate * direction[a]
    return point


@_compiled(array_code.scaled)
def _scaled(a: Any, factor: Any) -> Any:
    for i in range(len(a)):
        a[i] *= factor
    return a


@_compiled(array_code.saga)
def _saga(value: Any, table: Any, mean: Any, i: int, share: float) -> Any:
    for a in range(len(value)):
        now = value[a]
        change = now - table[i, a]
        table[i, a] = now
        value[a] = mean[0, a] + change
        mean[0, a] += share * change
    return value
