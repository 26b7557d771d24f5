"""Many outer steps in one call: a method in array code, joined with a model's functions.

All of them are plain functions, and numba compiles a loop in which every call is replaced by what
is called: once as a whole, and not again at every level. It finds the loop on disk by a digest of
the names of what it is joined from, and of their files.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from bilevel.kernels import array_code
from bilevel.kernels.array_code import Function, Known, ridged
from bilevel.kernels.kernel import OPTIONS, compiling, kernel

# Sums in any order, so that they can be done several terms at a time; NaN and infinity stay.
_FAST = {"fastmath": {"reassoc", "nsz", "arcp", "contract"}}


def _unbound(*given: Any) -> Any:
    """What the names below stand for until a loop is joined."""


text = move = kind = _unbound
of_inner = of_slope = of_hessian = of_cross = of_outer = of_ridge = add_ridge = _unbound
_NAMES = [name for name, value in globals().items() if value is _unbound][1:]  # as in `Known`


class Given(NamedTuple):
    """What a stretch works on.

    Args:
        now: a named tuple of the points, x first, which are written to.
        memory: that of x's update, a row for each of its vectors; written to.
        tables: of variance reduction; written to.
        draws: the rows of all steps.
        rates: of each step and point.
        numbers: of each step, the method's own.
        constants: those of x's update.
        kept: for each point, whether it takes what the text says as it is.
        implicit: whether the others take the penalty implicitly.
        before: how many steps x's update has made before them all.
        spaces: arrays for what the verbs find, in the order of `SHARED`.
        own: the model's arrays.
        direction: the last one of x; written to.
    """

    now: Any
    memory: Any
    tables: Any
    draws: Any
    rates: Any
    numbers: Any
    constants: Any
    kept: Any
    implicit: bool
    before: int
    spaces: Any
    own: Any
    direction: Any


def stretch(
    text: Function, move: Function, known: Known, given: Given, start: int, stop: int
) -> None:
    """Take the steps from `start` to before `stop`.

    Args:
        text: the method: (oracle, now, tables, draws, numbers, k) -> where the points want to go.
        move: how x moves: (x, direction, memory, constants, rate, t), in place.
        known: the model.
        given: the rest.
    """
    _joined(text, move, *known[:-1])(given, start, stop)


@functools.cache
def _joined(*parts: Any) -> Any:
    named = dict(zip(_NAMES, parts, strict=True))

    @functools.cache
    def bound(function: Function) -> Any:
        """The same, with its names of array code bound to what numba puts in their place."""
        scope = {**function.__globals__}
        for name in function.__code__.co_names:
            value = scope.get(name)
            if value is _unbound:
                value = scope[name] = named[name]
            elif isinstance(value, FunctionType):
                value = array_code.written.get(value)
            if isinstance(value, FunctionType):
                scope[name] = njit(inline="always", **OPTIONS)(bound(value))
        return FunctionType(function.__code__, scope)

    loop = bound(_loop)
    loop.__qualname__ = f"loop_{_digest(*parts)}"  # by which numba finds it on disk
    return kernel(loop, **_FAST)


def _digest(*parts: Any) -> str:
    """Of the names and files that a stretch is made of: numba itself looks at this file alone."""
    names = "".join(f"{part.__module__}.{part.__qualname__} " for part in parts)
    files = {inspect.getfile(function) for function in (*array_code.written, *parts)}
    files |= {str(file) for file in Path(__file__).parent.glob("*.py")}
    contents = (Path(file).read_bytes() for file in sorted(files))
    return hashlib.sha256(b"".join([names.encode(), *contents])).hexdigest()[:16]


def _loop(lent: Any, start: int, stop: int) -> None:
    compiling()
    given = _borrowed(lent)
    now, rates, kept, implicit = given.now, given.rates, given.kept, given.implicit
    memory, constants, before = given.memory, given.constants, given.before
    tables, draws, numbers = given.tables, given.draws, given.numbers
    oracle = kind(*given.spaces, *given.own)
    x, c, found = now[0], oracle.c, now
    for k in range(start, stop):
        # Once a step: the penalty is x's, which moves at its end.
        of_ridge(oracle, x, c)
        found = text(oracle, now, tables, draws, numbers, k)
        for i in range(1, len(now)):
            _follow(now[i], found[i], rates[k, i], kept[i], implicit, c)
        move(x, found[0], memory, constants, rates[k, 0], before + k + 1)
    for a in range(len(x)):
        given.direction[a] = found[0][a]


@intrinsic
def _borrowed(typing: Any, given: Any) -> Any:
    """The same arrays, to which no references are counted: they outlive the call.

    Else each verb counts those to all arrays that it takes out of a tuple, up and down again, which
    takes longer than its work on a few rows.
    """

    def without(context: Any, builder: Any, kind: Any, value: Any) -> Any:
        if isinstance(kind, types.BaseTuple):
            for i, part in enumerate(kind):
                free = without(context, builder, part, builder.extract_value(value, i))
                value = builder.insert_value(value, free, i)
        elif isinstance(kind, types.Array):
            array = context.make_array(kind)(context, builder, value)
            array.meminfo = ir.Constant(array.meminfo.type, None)
            value = array._getvalue()
        return value

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return without(context, builder, given, args[0])

    return given(given), generate


@array_code.array_code
def _follow(point: Any, found: Any, rate: Any, kept: bool, implicit: bool, c: Any) -> None:
    one = point.dtype.type(1)
    if kept:
        for a in range(len(point)):
            point[a] = found[a]
    elif implicit:
        for a in range(len(point)):
            point[a] -= found[a] / (one / rate + c[a])
    else:
        for a in range(len(point)):
            point[a] -= rate * found[a]


# The verbs, compiled: the oracle is of a model's `kind`.


def _compiled(verb: Function) -> Function:
    """What a verb of `array_code` is inside of compiled code."""

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
