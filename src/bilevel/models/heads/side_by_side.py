"""Tasks side by side: a thread for each, instead of all threads on one task after another.

Torch's threads meet after every operation; tasks meet once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from bilevel.kernels.threads import openmp

T = TypeVar("T")


def side_by_side(function: Callable[[int], T], numbers: Sequence[int]) -> list[T]:
    """The function of each number, in as many threads as torch uses.

    In these threads, each operation of torch uses one thread; elsewhere nothing changes. Where
    torch's threads cannot be told that, the numbers come one after another.

    Example:
        >>> side_by_side(lambda i: i * i, [1, 2, 3])
        [1, 4, 9]
    """
    count = min(torch.get_num_threads(), len(numbers))
    if count <= 1 or openmp() is None:
        return [function(number) for number in numbers]
    with ThreadPoolExecutor(count, initializer=_work_alone) as pool:
        return list(pool.map(function, numbers))


def _work_alone() -> None:
    """Of OpenMP's settings this is one that each thread has for itself."""
    torch.get_num_threads()  # torch sets it when a thread first asks, so before us
    library = openmp()
    assert library is not None
    library.omp_set_num_threads(1)
