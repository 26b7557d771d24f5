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

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from bilevel.kernels import array_code
from bilevel.kernels.array_code import Function, Known
from bilevel.kernels.compiled_verbs import NAMES, kind, move, of_ridge, text, unbound
from bilevel.kernels.kernel import OPTIONS, compiling, kernel
from bilevel.kernels.pasting import Paster

# Sums in any order, so that they can be done several terms at a time; NaN and infinity stay.
_FAST = {"fastmath": {"reassoc", "nsz", "arcp", "contract"}}


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
    named = dict(zip(NAMES, parts, strict=True))

    def find(function: Function, name: str) -> Any:
        """What a name stands for: of a model's or method's own, or what numba sees of a verb."""
        value = function.__globals__.get(name, paster)
        if value is unbound:
            return named[name]
        return array_code.written.get(value, value) if is_code(value) else value

    def is_code(value: Any) -> bool:
        return isinstance(value, FunctionType) and (
            value in array_code.written or value in array_code.written.values() or value in parts
        )

    @functools.cache
    def called(function: Function) -> Any:
        """To be compiled as a function, for numba to put in place of a call."""
        names = {n: find(function, n) for n in function.__code__.co_names}
        scope = {n: called(v) if is_code(v) else v for n, v in names.items() if v is not paster}
        own = FunctionType(function.__code__, {**function.__globals__, **scope})
        return njit(inline="always", **OPTIONS)(own)

    paster = Paster(find, is_code, called, named["kind"], len(array_code.SHARED))
    # numba finds it on disk by its name.
    loop = paster.joined(_loop, f"loop_{_digest(*parts)}", __file__)
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
    spaces, own = given.spaces, given.own
    oracle = kind(spaces, own)
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
    """The same arrays without reference counts: they outlive the call.

    Otherwise each verb would count references to all arrays that it takes out of a tuple, up and
    down again, which takes longer than its work on a few rows.
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
