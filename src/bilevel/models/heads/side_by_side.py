"""Tasks side by side: a thread for each, instead of all threads on one task after another.

Torch's threads meet after every operation; tasks meet once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")


def side_by_side(function: Callable[[int], T], numbers: Sequence[int]) -> list[T]:
    """The function of each number, in as many threads as torch uses.

    In these threads, each operation of torch uses one thread; elsewhere nothing changes.

    Example:
        >>> side_by_side(lambda i: i * i, [1, 2, 3])
        [1, 4, 9]
    """
    count = torch.get_num_threads()
    if min(count, len(numbers)) <= 1:
        return [function(number) for number in numbers]
    try:
        # A thread sets this for itself, and for the threads that are started later.
        with ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(function, numbers))
    finally:
        torch.set_num_threads(count)
