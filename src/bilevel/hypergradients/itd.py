"""Iterative differentiation: the reverse sweep over the inner steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from bilevel.arguments import instance, natural, positive_integer
from bilevel.hypergradients.base import Differentiation, Estimate
from bilevel.hypergradients.starts import GivenStart, Start
from bilevel.oracles.base import Linearization, Oracle, Step, Sweep
from bilevel.problem.sampling import Streams
from bilevel.solvers.inner.base import GradientSteps, InnerSolution, InnerSolver, InnerStatus
from bilevel.solvers.linear.base import LinearSolution, LinearStatus


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
        y_D, stretches = self._descend(oracle, x, y, steps, first)

        h, r = oracle.outer_gradient(x, y_D)
        sweep = Sweep(r, torch.zeros_like(r), h)
        last: Callable[[], Tensor] = r.clone
        for start, end, path in stretches:
            if start > first:
                sweep = oracle.retrace(x, path, steps[start:end], sweep)
                continue
            sweep = oracle.retrace(x, path[1:], steps[start + 1 : end], sweep)
            around = oracle.linearize(x, path[0], steps[first].rows)
            sweep, last = _step_back(around, sweep, steps[first].lr)
        h = sweep.covector
        if first == 0:
            h = self.start.add_covector(oracle, x, h, last)
        return Estimate(
            oracle.pull(x, h),
            InnerSolution(y_D, InnerStatus.STEP_LIMIT, len(steps)),
            LinearSolution(sweep.total, LinearStatus.STEP_LIMIT, len(steps) - first, residual=None),
        )

    def _descend(
        self, oracle: Oracle, x: Tensor, y: Tensor, steps: list[Step], first: int
    ) -> tuple[Tensor, Iterator[tuple[int, int, Tensor]]]:
        """y^D, and stretches of steps, the last first: from where to where, and their y^t."""
        if first:
            y = oracle.descend(x, y, steps[:first])
        if self.checkpoint is None:
            path = oracle.trace(x, y, steps[first:])
            whole = [(first, len(steps), path[:-1])] if first < len(steps) else []
            return path[-1].clone(), iter(whole)
        kept = []
        for start in range(first, len(steps), self.checkpoint):
            kept.append((start, y))
            y = oracle.descend(x, y, steps[start : start + self.checkpoint])
        return y, self._recomputed(oracle, x, steps, kept)

    def _recomputed(
        self, oracle: Oracle, x: Tensor, steps: list[Step], kept: list[tuple[int, Tensor]]
    ) -> Iterator[tuple[int, int, Tensor]]:
        """Each stored iterate starts a stretch."""
        end = len(steps)
        while kept:
            start, y = kept.pop()
            yield start, end, oracle.trace(x, y, steps[start : end - 1])
            end = start


def _step_back(
    around: Linearization, sweep: Sweep, alpha: float
) -> tuple[Sweep, Callable[[], Tensor]]:
    """Over the first step, where the Hessian's product is the start's to ask for."""
    r, total, covector = sweep
    after = Sweep(r, total.add(r, alpha=alpha), covector.sub(around.cross(r), alpha=alpha))
    return after, lambda: r.sub(around.hvp(r), alpha=alpha)
