"""Iterative differentiation: the reverse sweep over the inner steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from bilevel.arguments import instance, natural, positive_integer
from bilevel.hypergradients.base import Differentiation, Estimate, Stand
from bilevel.hypergradients.starts import GivenStart, Start
from bilevel.oracles.plans import Descend, Retrace, Step, Sweep, Trace, do
from bilevel.oracles.points import Linear, Oracle
from bilevel.oracles.prices import Cost
from bilevel.problem.sampling import Streams
from bilevel.solvers.inner.base import GradientSteps, InnerSolution, InnerSolver, InnerStatus
from bilevel.solvers.inner.steps import Steps, Taken
from bilevel.solvers.linear.base import LinearSolution, LinearStatus


@dataclass(frozen=True)
class ITD(Differentiation):
    """∂f(x, y^D(x))/∂x through the D inner steps y^{t+1} = y^t − α ∇y g(x, y^t).

    ∇x f(x, y^D) − α Σ_{t=0..D−1} ∇x∇y g(x, y^t) Π_{j=t+1..D−1} (I − α ∇²y g(x, y^j)) ∇y f(x, y^D)

    The sum is built backwards from stored iterates with D cross products and D − 1
    Hessian-vector products, so it keeps D vectors, not D graphs.

    Args:
        truncate: how many steps are differentiated, the last ones; None is all of them, and 0
            leaves ∇x f alone: the first-order method.
        checkpoint: n stores only every n-th iterate and recomputes the others, one stretch at a
            time: less memory for up to D more gradients. None stores all.
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

    def check(self, inner: InnerSolver) -> None:
        if not isinstance(inner, GradientSteps | Steps):
            raise ValueError(
                f"ITD differentiates gradient steps; {type(inner).__name__} is not made of them. "
                "Use GradientDescent, SGD or Steps, or AID, which takes any inner solver."
            )
        if self.checkpoint is not None and isinstance(inner, Steps):
            raise ValueError(
                f"checkpoint = {self.checkpoint} recomputes plain gradient steps only: leave it "
                "out with inner.Steps, or use GradientDescent or SGD"
            )

    def price(self, inner: InnerSolver, warm: bool) -> Cost:
        steps = inner.price()
        D = steps.gc_g or 0
        T = D if self.truncate is None else min(D, self.truncate)
        # The Hessian of the first step is the start's to ask for.
        hv = T if self.start.needs_last and T == D else max(0, T - 1)
        again = Cost(gc_g=None if self.checkpoint else 0)  # recomputed steps
        return steps + again + Cost(gc_f=2, jv=T, hv=hv)

    def estimate(
        self, oracle: Oracle, stand: Stand, inner: InnerSolver, streams: Streams
    ) -> Estimate:
        self.check(inner)
        if isinstance(inner, Steps):
            return self._through_updates(oracle, stand, inner, streams)
        assert isinstance(inner, GradientSteps)
        x, steps = stand.x, inner.plan(oracle, stand.x, stand.y, streams)
        # Steps before `first` are taken but not differentiated: no iterate of theirs is stored.
        first = 0 if self.truncate is None else max(0, len(steps) - self.truncate)
        y_D, stretches = self._descend(oracle, x, stand.y, steps, first)

        # Proposition 2 from its last factor on: h starts as ∇x f(x, y^D), r as ∇y f(x, y^D).
        h, r = oracle.outer(x, y_D).gradient()
        sweep = Sweep(r, torch.zeros_like(r), h)
        last: Callable[[], Tensor] = r.clone
        for start, end, path in stretches:
            if start > first:
                sweep = do(Retrace(x, path, steps[start:end], sweep), oracle)
                continue
            # The first differentiated step is apart: Proposition 2 has D cross products, but D − 1
            # Hessian products. One more is needed only where the start depends on x.
            sweep = do(Retrace(x, path[1:], steps[start + 1 : end], sweep), oracle)
            around = oracle.linearize(x, path[0], steps[first].rows)
            sweep, last = _step_back(around, sweep, steps[first].lr)
        h = sweep.covector
        # A truncated sweep never reaches the start.
        if first == 0:
            h = self.start.add_covector(oracle, x, h, last)
        return Estimate(
            oracle.pull(x, h),
            InnerSolution(y_D, InnerStatus.STEP_LIMIT, len(steps)),
            LinearSolution(sweep.total, LinearStatus.STEP_LIMIT, len(steps) - first, residual=None),
        )

    def _through_updates(
        self, oracle: Oracle, stand: Stand, inner: Steps, streams: Streams
    ) -> Estimate:
        """Back over steps of any update that has a transpose, which need their gradients again."""
        x, update = stand.x, inner.update
        kept = deque[Taken](maxlen=self.truncate)  # what is cut off need not be stored
        for after, taken in inner.walk(oracle, x, stand.y, streams, dict(stand.memory)):
            found = after
            kept.append(taken)
        h, r = oracle.outer(x, found.y).gradient()
        total, of_memory = torch.zeros_like(r), dict[str, Tensor]()
        reaches_start = self.truncate is None or self.truncate >= inner.steps
        while kept:
            step = kept.pop()
            # Covectors of the point and of the memory go back together: momentum links the steps.
            back = update.transpose(r, of_memory, step.gradient, step.memory, step.look)
            around = oracle.linearize(x, step.y, step.rows)
            # For plain descent −back.gradient is α r, and the total is the v that AID solves for.
            total.sub_(back.gradient)
            if kept or (reaches_start and self.start.needs_last):
                hvp, cross = around.both(back.gradient)
                h, r, of_memory = h + cross, back.point + hvp, back.memory
            else:
                h = h + around.cross(back.gradient)
        if reaches_start:
            h = self.start.add_covector(oracle, x, h, lambda: r)
        terms = inner.steps if self.truncate is None else min(self.truncate, inner.steps)
        linear = LinearSolution(total, LinearStatus.STEP_LIMIT, terms, residual=None)
        return Estimate(oracle.pull(x, h), found, linear)

    def _descend(
        self, oracle: Oracle, x: Tensor, y: Tensor, steps: list[Step], first: int
    ) -> tuple[Tensor, Iterator[tuple[int, int, Tensor]]]:
        """y^D, and stretches of steps, the last first: from where to where, and their y^t."""
        if first:
            y = do(Descend(x, y, steps[:first]), oracle)
        if self.checkpoint is None:
            path = do(Trace(x, y, steps[first:]), oracle)
            whole = [(first, len(steps), path[:-1])] if first < len(steps) else []
            # A copy: a view of the last row would keep the whole path alive in the state.
            return path[-1].clone(), iter(whole)
        kept = []
        # D/n vectors are kept, and n more while a stretch is retraced: n = √D needs the least room.
        for start in range(first, len(steps), self.checkpoint):
            kept.append((start, y))
            y = do(Descend(x, y, steps[start : start + self.checkpoint]), oracle)
        return y, self._recomputed(oracle, x, steps, kept)

    def _recomputed(
        self, oracle: Oracle, x: Tensor, steps: list[Step], kept: list[tuple[int, Tensor]]
    ) -> Iterator[tuple[int, int, Tensor]]:
        """Each stored iterate starts a stretch."""
        end = len(steps)
        while kept:
            start, y = kept.pop()
            # Its last step is not repeated: only the y before each step is needed.
            yield start, end, do(Trace(x, y, steps[start : end - 1]), oracle)
            end = start


def _step_back(around: Linear, sweep: Sweep, alpha: float) -> tuple[Sweep, Callable[[], Tensor]]:
    """Over the first step, where the Hessian's product is the start's to ask for."""
    r, total, covector = sweep
    after = Sweep(r, total.add(r, alpha=alpha), covector.sub(around.cross(r), alpha=alpha))
    return after, lambda: r.sub(around.hvp(r), alpha=alpha)
