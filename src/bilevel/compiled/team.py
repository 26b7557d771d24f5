"""A team of threads inside of a kernel: torch's own, called as compiled OpenMP code calls it.

`parallel(body, arguments, threads)` runs `body(arguments, me, size)` in each of `size` threads, of
which this is number `me`; `size` may be less than was asked for. No Python is involved: it takes
two millionths of a second. The body must not raise, so what it needs is allocated before.
"""

from __future__ import annotations

import ctypes
from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba import njit
from numba.core import cgutils, types
from numba.extending import intrinsic

from bilevel.compiled import threads

_FUNCTIONS = ("GOMP_parallel", "GOMP_barrier", "omp_get_thread_num", "omp_get_num_threads")
_VOID, _INT, _POINTER = ir.VoidType(), ir.IntType(32), ir.IntType(8).as_pointer()


def _name() -> None:
    """Names for OpenMP's functions, under which kernels from the disk find them, too.

    Without them kernels have one thread; then the names stand for a function that does nothing.
    """
    library = threads.openmp()
    for name in _FUNCTIONS:
        found = ctypes.pythonapi.Py_IsInitialized if library is None else getattr(library, name)
        address = ctypes.cast(found, ctypes.c_void_p).value
        llvmlite.binding.add_symbol(f"bilevel_{name}", address)


_name()


def _called(builder: Any, name: str, result: ir.Type, *args: ir.Value) -> ir.Value:
    kind = ir.FunctionType(result, [arg.type for arg in args])
    function = cgutils.get_or_insert_function(builder.module, kind, f"bilevel_{name}")
    return builder.call(function, args)


@intrinsic(prefer_literal=True)
def parallel(typing: Any, body: Any, arguments: Any, threads: Any) -> Any:
    """`body(arguments, me, size)` in each thread of a team; in this one alone if `threads` is 1."""
    of_body = types.void(arguments, types.intp, types.intp)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        compiled = context.compile_subroutine(builder, body.dispatcher.py_func, of_body)
        integer, room = args[2].type, cgutils.alloca_once_value(builder, args[1])

        def call(at: Any, *values: ir.Value) -> None:
            context.call_internal_no_propagate(at, compiled.fndesc, of_body, values)

        kind = ir.FunctionType(_VOID, [_POINTER])
        name = builder.module.get_unique_name("member")
        member = ir.Function(builder.module, kind, name)
        member.linkage = "internal"
        inside = ir.IRBuilder(member.append_basic_block())
        me = _called(inside, "omp_get_thread_num", _INT)
        size = _called(inside, "omp_get_num_threads", _INT)
        given = inside.load(inside.bitcast(member.args[0], room.type))
        call(inside, given, inside.sext(me, integer), inside.sext(size, integer))
        inside.ret_void()

        one = ir.Constant(integer, 1)
        with builder.if_else(builder.icmp_signed(">", args[2], one)) as (many, alone):
            with many:
                count, flags = builder.trunc(args[2], _INT), ir.Constant(_INT, 0)
                data = builder.bitcast(room, _POINTER)
                _called(builder, "GOMP_parallel", _VOID, member, data, count, flags)
            with alone:
                call(builder, args[1], ir.Constant(integer, 0), one)
        return context.get_dummy_value()

    return types.void(body, arguments, types.intp), generate


@intrinsic
def barrier(typing: Any) -> Any:
    """Wait for the other threads of the team."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        _called(builder, "GOMP_barrier", _VOID)
        return context.get_dummy_value()

    return types.void(), generate


@njit(nogil=True)
def share(count: int, me: int, size: int) -> tuple[int, int]:
    """From where to where this thread's part of `count` things goes."""
    return count * me // size, count * (me + 1) // size
