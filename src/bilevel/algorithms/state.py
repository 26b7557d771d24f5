"""Where a run stands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class State:
    """Plain data: `torch.save` and `torch.load(..., weights_only=True)` round-trip it.

    A step returns a new State and writes nothing into the old one. Random numbers need no
    place here: they depend on the oracle's seed and on `step` alone.

    Args:
        step: k, how many outer steps were taken.
        x, y: the variables, flat.
        y0: where the inner problem starts anew, without a warm start.
        v: the last solution of the linear system; None before the first step.
        hypergradient: the last estimate of ∇Φ; None before the first step.
        memory: what the outer optimiser remembers.
        measured: what "auto" has found out, by name.
        report: how the last step's solves went, by name.
    """

    step: int
    x: Tensor
    y: Tensor
    y0: Tensor
    v: Tensor | None = None
    hypergradient: Tensor | None = None
    memory: dict[str, Any] = field(default_factory=dict)
    measured: dict[str, float] = field(default_factory=dict)
    report: dict[str, Any] = field(default_factory=dict)

    def is_finite(self) -> bool:
        vectors = (self.x, self.y, self.v, self.hypergradient)
        return all(_is_finite(v) for v in vectors if v is not None)


def _is_finite(vector: Tensor) -> bool:
    """One pass: a sum that is finite has finite terms; only one that is not may have overflown."""
    return bool(vector.sum().isfinite()) or bool(vector.isfinite().all())


torch.serialization.add_safe_globals([State])
