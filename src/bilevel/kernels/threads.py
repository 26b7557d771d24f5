"""Kernels in the threads that torch uses itself.

After each parallel operation, torch's OpenMP threads stay awake for a while and wait for the next.
Threads of another pool would have to share the processors with them, so kernels run in torch's own
team. Where that cannot be called, they run in a pool of Python's.

Only kernels: operations of torch are not made to run inside of a team, and some wait for ever.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import torch

Call = Callable[[], object]


def count() -> int:
    """How many threads torch uses."""
    return torch.get_num_threads()


def of_kernel() -> int:
    """How many threads `bilevel.kernels.team` can give to a kernel."""
    return 1 if team() is None else count()


def run(calls: Sequence[Call]) -> None:
    """All of them at the same time: kernels, which let go of Python's lock."""
    if len(calls) == 1:
        calls[0]()
    elif (openmp := team()) is not None:
        _in_team(openmp, calls)
    else:
        list(_pool(os.getpid()).map(lambda call: call(), calls))


def share(size: int, kernel: Callable[..., None], *arguments: object) -> None:
    """A kernel on the things from 0 to `size`, which it is told to take from where to where."""
    parts = pairwise(size * i // count() for i in range(count() + 1))
    run([functools.partial(kernel, *arguments, *part) for part in parts])


_Body = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def _in_team(openmp: ctypes.CDLL, calls: Sequence[Call]) -> None:
    """What a compiler makes of `#pragma omp parallel`: each thread takes calls while there are."""
    left, failures = iter(calls), list[BaseException]()

    def body(_: int | None) -> None:
        try:
            for call in left:
                call()
        except BaseException as failure:  # nothing may be raised through OpenMP's own frames
            failures.append(failure)

    openmp.GOMP_parallel(_Body(body), None, len(calls), 0)
    if failures:
        raise failures[0]


def team() -> ctypes.CDLL | None:
    """The OpenMP that torch has loaded, if it can be called as GNU's is."""
    return openmp() if os.getpid() == _PROCESS else None  # a forked process has no such threads


@functools.cache
def openmp() -> ctypes.CDLL | None:
    """The same, without a look at the process."""
    try:
        found = ctypes.CDLL(None)
        found.GOMP_parallel.argtypes = [_Body, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
        return found if _is_torchs(found) else None
    except (AttributeError, OSError, TypeError):
        return None


def _is_torchs(library: ctypes.CDLL) -> bool:
    """Whether it is the one that torch asks: there may be several in a process."""

    def seen() -> bool:
        torch.get_num_threads()  # torch sets the number when a thread first asks
        library.omp_set_num_threads(1)  # of this thread
        return torch.get_num_threads() == 1

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(seen).result()


@functools.cache
def _pool(process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=os.cpu_count(), thread_name_prefix="bilevel")


_PROCESS = os.getpid()
