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

from bilevel.kernels import threads

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
        integer, one = args[2].type, ir.Constant(args[2].type, 1)
        both = types.Tuple((arguments, types.intp))  # type: ignore[attr-defined]
        given = context.make_tuple(builder, both, [args[1], args[2]])
        room = cgutils.alloca_once_value(builder, given)

        kind = ir.FunctionType(_VOID, [_POINTER])
        member = ir.Function(builder.module, kind, builder.module.get_unique_name("member"))
        member.linkage = "internal"
        member.attributes.add("noinline")  # or the body is compiled twice
        inside = ir.IRBuilder(member.append_basic_block())
        values = inside.load(inside.bitcast(member.args[0], room.type))
        together = inside.icmp_signed(">", inside.extract_value(values, 1), one)
        me, size = (
            inside.sext(_called(inside, name, _INT), integer)
            for name in ("omp_get_thread_num", "omp_get_num_threads")
        )
        me = inside.select(together, me, ir.Constant(integer, 0))
        size = inside.select(together, size, one)
        everything = [inside.extract_value(values, 0), me, size]
        context.call_internal_no_propagate(inside, compiled.fndesc, of_body, everything)
        inside.ret_void()

        data = builder.bitcast(room, _POINTER)
        with builder.if_else(builder.icmp_signed(">", args[2], one)) as (many, alone):
            with many:
                count, flags = builder.trunc(args[2], _INT), ir.Constant(_INT, 0)
                _called(builder, "GOMP_parallel", _VOID, member, data, count, flags)
            with alone:
                builder.call(member, [data])
        return context.get_dummy_value()

    return types.void(body, arguments, types.intp), generate


@intrinsic
def _barrier(typing: Any) -> Any:

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        _called(builder, "GOMP_barrier", _VOID)
        return context.get_dummy_value()

    return types.void(), generate


@njit(nogil=True)
def barrier(size: int) -> None:
    """Wait for the other threads of the team; alone, for nobody, whatever team this is part of."""
    if size > 1:
        _barrier()


@njit(nogil=True)
def share(count: int, me: int, size: int) -> tuple[int, int]:
    """From where to where this thread's part of `count` things goes."""
    return count * me // size, count * (me + 1) // size
