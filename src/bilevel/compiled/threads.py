"""Kernels in as many threads as torch uses.

Compiled kernels let go of Python's lock. The pool is plain Python's: it needs no second runtime
beside torch's, and a forked process makes its own.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch


def run(calls: Sequence[Callable[[], object]]) -> None:
    """All of them at the same time, the last one in this thread."""
    *others, own = calls
    if not others:
        own()
        return
    pending = [_pool(os.getpid()).submit(call) for call in others]
    own()
    for future in pending:
        future.result()


def count() -> int:
    """How many threads torch uses."""
    return torch.get_num_threads()


@functools.cache
def _pool(process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=os.cpu_count(), thread_name_prefix="bilevel")
