"""A kernel that shows whether kernels can be compiled, and kept on disk, at all."""

from __future__ import annotations

from bilevel.kernels.kernel import compiled


@compiled
def third_power(x: int) -> int:
    """x³."""
    found = 1
    for _ in range(3):
        found *= x
    return found
