"""Kernels in several threads: they release Python's lock, so that Python's own pool will do.

Only kernels: operations of torch have threads of their own.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise
from typing import Any

import torch


def count() -> int:
    """How many threads kernels may have: as many as torch uses."""
    return torch.get_num_threads()  # of this thread: 1 where tasks run side by side


def run(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """The results of all of them, run at the same time, the first one in this thread."""
    first, *others = calls
    # One part needs no pool: the usual case, on one thread or for little work.
    if not others:
        return [first()]
    # Starting another thread takes about 40 µs, so callers share only what takes longer.
    started = [_pool(os.getpid()).submit(call) for call in others]
    try:
        found = first()
    finally:
        wait(started)  # their output must not be freed before they are done
    return [found, *(call.result() for call in started)]


def parts(size: int, count: int) -> list[tuple[int, int]]:
    """The range from 0 to `size` in `count` parts, each as its first index and its end."""
    # Rounded down at each border: no two parts differ by more than one.
    return list(pairwise(size * i // count for i in range(count + 1)))


def share(size: int, kernel: Callable[..., None], *arguments: object) -> None:
    """A kernel on the range from 0 to `size`: each call gets the borders of its part last."""
    run([functools.partial(kernel, *arguments, *part) for part in parts(size, count())])


@functools.cache
def _pool(process: int) -> ThreadPoolExecutor:
    """One for each process: a forked one has none of its parent's threads."""
    # Torch's number of threads may change later: here is room for the most that make sense.
    return ThreadPoolExecutor(max_workers=os.cpu_count(), thread_name_prefix="bilevel")
