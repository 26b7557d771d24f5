"""Iterative differentiation: the reverse sweep over the inner steps."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from bilevel.arguments import instance, natural, positive_integer
from bilevel.hypergradients.base import Differentiation, Estimate
from bilevel.hypergradients.start import GivenStart, Start
from bilevel.inner.base import GradientSteps, InnerSolution, InnerSolver, InnerStatus
from bilevel.linear.base import LinearSolution, LinearStatus
from bilevel.oracles.base import Linearization, Oracle, Step
from bilevel.sampling import Streams


@dataclass(frozen=True)
class ITD(Differentiation):
    """∂f(x, y^D(x))/∂x through the D inner steps y^{t+1} = y^t − α ∇y g(x, y^t).

    ∇x f(x, y^D) − α Σ_{t=0..D−1} ∇x∇y g(x, y^t) Π_{j=t+1..D−1} (I − α ∇²y g(x, y^j)) ∇y f(x, y^D)

    The sum is built backwards from stored iterates with D cross products and D − 1
    Hessian-vector products, so it keeps D vectors, not D graphs.

    Args:
        truncate: differentiate only the last so many steps; None is all of them, and 0 leaves
            ∇x f alone: the first-order method.
        checkpoint: store only every so-maniest iterate and recompute the others, one stretch at
            a time: less memory for up to D more gradients. None stores all.
        start: whether y^0 depends on x: `GivenStart()`, or `LearnedStart()`, which adds
            ∂y^0/∂x Π_{j=0..D−1} (I − α ∇²y g(x, y^j)) ∇y f(x, y^D). With truncation, the path to
            the start is cut.

    Reference: the paper, Proposition 2 and Algorithm 1 (ITD). Truncation: Shaban, Cheng, Hatch
    & Boots, "Truncated back-propagation for bilevel optimization", AISTATS 2019.
    """

    truncate: int | None = None
    checkpoint: int | None = None
    start: Start = field(default_factory=GivenStart)

    def __post_init__(self) -> None:
        if self.truncate is not None:
            natural("truncate", self.truncate)
        if self.checkpoint is not None:
            positive_integer("checkpoint", self.checkpoint)
        instance("start", self.start, Start, "bilevel.hypergradients.LearnedStart()")

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
                "Use GradientDescent, SafeDescent or SGD, or AID, which takes any inner solver."
            )
        steps = inner.plan(oracle, x, y, streams)
        first = 0 if self.truncate is None else max(0, len(steps) - self.truncate)
        y_D, kept = self._descend(oracle, x, y, steps, first)

        h, r = oracle.outer_gradient(x, y_D)
        total, last = torch.zeros_like(r), r.clone
        for t, y_t in self._backwards(oracle, x, steps, first, kept):
            alpha, around = steps[t].lr, oracle.linearize(x, y_t, steps[t].rows)
            total.add_(r, alpha=alpha)
            if t == first:  # the product is the start's to ask for
                h = h.sub(around.cross(r), alpha=alpha)
                last = functools.partial(_step_back, around, r, alpha)
            else:
                hvp, cross = around.hvp_and_cross(r)
                h, r = h.sub(cross, alpha=alpha), r.sub(hvp, alpha=alpha)
        if first == 0:
            h = self.start.add_covector(oracle, x, h, last)
        return Estimate(
            oracle.pull(x, h),
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


def _step_back(around: Linearization, r: Tensor, alpha: float) -> Tensor:
    """(I − α ∇²y g) r."""
    return r.sub(around.hvp(r), alpha=alpha)
