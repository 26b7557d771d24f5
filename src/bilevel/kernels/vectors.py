"""Long vectors in one pass."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from torch import Tensor

from bilevel.kernels import threads
from bilevel.kernels.kernel import compiling, kernel

_WORTH_A_THREAD = 2**18  # numbers; fewer are summed while another thread starts


def dot(a: Tensor, b: Tensor) -> float:
    """⟨a, b⟩, summed in double precision."""
    count = min(threads.count(), 1 + len(a) // _WORTH_A_THREAD)
    parts = (slice(*part) for part in threads.parts(len(a), count))
    calls = [functools.partial(_dot, a.numpy()[part], b.numpy()[part]) for part in parts]
    # In the order of the parts: as many threads give the same bits, whichever is done first.
    return float(sum(threads.run(calls)))


# Reordered, so that the sum runs in vector registers; NaN and infinity are still honoured.
@functools.partial(kernel, fastmath={"reassoc", "contract"})
def _dot(a: Any, b: Any) -> Any:
    compiling()
    found = 0.0
    for i in range(len(a)):
        found += np.float64(a[i]) * np.float64(b[i])
    return found
