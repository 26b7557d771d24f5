"""How kernels are compiled."""

from __future__ import annotations

import functools
import logging
import sys
import warnings
from collections.abc import Callable
from typing import Any

from numba import njit
from numba.extending import overload

Function = Callable[..., Any]

# Without Python's lock, and with infinity for 1/0 as in numpy: no exceptions to compile.
# Sums in the order in which they are written. Said here, since otherwise the caller would decide,
# and reordering undoes the rounding by which `exponential` works.
# Nobody calls a kernel from C.
OPTIONS = {"nogil": True, "error_model": "numpy", "fastmath": False, "no_cfunc_wrapper": True}
# Not cached by themselves: what a kernel calls is kept as a part of it. Nor called from Python.
inner = njit(no_cpython_wrapper=True, **OPTIONS)  # what kernels call


def compiled(function: Function, **options: Any) -> Any:
    """Compiled at first use, and kept on disk for the next process.

    Where no folder can be written to, numba refuses to keep it: then it is compiled each time.
    """
    try:
        return njit(cache=True, **{**OPTIONS, **options})(function)
    except RuntimeError:  # "no locator available"
        return njit(**{**OPTIONS, **options})(function)


def kernel(function: Function, **options: Any) -> Function:
    """`compiled`, and once more without the disk if that fails: it may be full, or a file damaged.

    numba reads and writes its files before a kernel runs, so nothing is done twice.
    """
    there, alone = compiled(function, **options), list[Function]()

    @functools.wraps(function)
    def call(*given: Any) -> Any:
        if alone:
            return alone[0](*given)
        try:
            return there(*given)
        # Not the disk's fault, and a second attempt would need as much again.
        except MemoryError:
            raise
        except Exception as failure:
            alone.append(njit(**{**OPTIONS, **options})(function))
            found = alone[0](*given)  # an error of the kernel's own is raised here again
            _warn_of_cache(f"{type(failure).__name__}: {failure}")
            return found

    return call


def _warn_of_cache(failure: str) -> None:
    """Once per process, however many kernels have the same trouble with the disk."""
    # A list, not a cache on the text: each kernel would have a text of its own.
    if not _WARNED:
        _WARNED.append(failure)
        warnings.warn(
            f"numba could not keep a kernel on disk or read it from there ({failure}). Kernels are "
            "compiled for this process alone. Emptying the cache or freeing disk space may help.",
            RuntimeWarning,
            stacklevel=3,
        )


_WARNED: list[str] = []


def compiling() -> None:
    """The first line of a kernel: it does nothing, but numba looks it up before it compiles."""


@overload(compiling)
def _compiling() -> Function:
    say_once()
    return lambda: None


@functools.cache
def say_once() -> None:
    """Say that there is something to wait for; kernels that come from disk need no wait."""
    message = "bilevel: compiling kernels, which takes some seconds the first time"
    logging.getLogger("bilevel").info(message)
    print(message, file=sys.stderr, flush=True)
