"""Iterative differentiation: the reverse sweep over the inner steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from bilevel.arguments import positive_integer
from bilevel.hypergradients.base import Differentiation, Estimate
from bilevel.inner.base import GradientSteps, InnerSolution, InnerSolver, InnerStatus, Step
from bilevel.linear.base import LinearSolution, LinearStatus
from bilevel.oracles.base import Oracle
from bilevel.sampling import Streams


@dataclass(frozen=True)
class ITD(Differentiation):
    """∂f(x, y^D(x))/∂x through the D inner steps y^{t+1} = y^t − α ∇y g(x, y^t).

    ∇x f(x, y^D) − α Σ_{t=0..D−1} ∇x∇y g(x, y^t) Π_{j=t+1..D−1} (I − α ∇²y g(x, y^j)) ∇y f(x, y^D)

    The sum is built backwards from stored iterates with D cross products and D − 1
    Hessian-vector products, so it keeps D vectors, not D graphs.

    Args:
        truncate: differentiate only the last so many steps; None is all of them.
        checkpoint: store only every so-maniest iterate and recompute the others, one stretch at
            a time: less memory for up to D more gradients. None stores all.

    Reference: the paper, Proposition 2 and Algorithm 1 (ITD). Truncation: Shaban, Cheng, Hatch
    & Boots, "Truncated back-propagation for bilevel optimization", AISTATS 2019.
    """

    truncate: int | None = None
    checkpoint: int | None = None

    def __post_init__(self) -> None:
        for name in ("truncate", "checkpoint"):
            if getattr(self, name) is not None:
                positive_integer(name, getattr(self, name))

    def estimate(
        self,
        oracle: Oracle,
        x: Tensor,
        y: Tensor,
        v: Tensor | None,
        inner: InnerSolver,
        streams: Streams,
    ) -> Estimate:
        if not isinstance(inner, GradientSteps):
            raise ValueError(
                f"ITD differentiates gradient steps; {type(inner).__name__} is not made of them. "
                "Use GradientDescent or SGD, or AID, which takes any inner solver."
            )
        steps = inner.plan(streams)
        first = max(0, len(steps) - (self.truncate or len(steps)))
        y_D, kept = self._descend(oracle, x, y, steps, first)

        h, r = oracle.outer_gradient(x, y_D)
        total = torch.zeros_like(r)
        for t, y_t in self._backwards(oracle, x, steps, first, kept):
            alpha = steps[t].lr
            around = oracle.linearize(x, y_t, steps[t].rows)
            h = h.sub(around.cross(r), alpha=alpha)
            total.add_(r, alpha=alpha)
            if t > first:
                r = r.sub(around.hvp(r), alpha=alpha)
        return Estimate(
            h,
            InnerSolution(y_D, InnerStatus.STEP_LIMIT, len(steps)),
            LinearSolution(total, LinearStatus.STEP_LIMIT, len(steps) - first, residual=None),
        )

    def _descend(
        self, oracle: Oracle, x: Tensor, y: Tensor, steps: list[Step], first: int
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """y^D, and the iterates y^t to go back from."""
        stride, kept = self.checkpoint or 1, {}
        for t, step in enumerate(steps):
            if t >= first and (t - first) % stride == 0:
                kept[t] = y
            y = step.apply(oracle, x, y)
        return y, kept

    def _backwards(
        self, oracle: Oracle, x: Tensor, steps: list[Step], first: int, kept: dict[int, Tensor]
    ) -> Iterator[tuple[int, Tensor]]:
        """(t, y^t) for t = D − 1, ..., first; each stored iterate starts a stretch."""
        end = len(steps)
        for start in sorted(kept, reverse=True):
            stretch = [kept.pop(start)]
            for t in range(start, end - 1):
                stretch.append(steps[t].apply(oracle, x, stretch[-1]))
            for t in range(end - 1, start - 1, -1):
                yield t, stretch.pop()
            end = start
