"""Iterative differentiation: the reverse sweep over the inner steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from bilevel.arguments import Count, Natural
from bilevel.hypergradients.base import Differentiation, Estimate, Stand
from bilevel.hypergradients.starts import GivenStart, Start
from bilevel.hypergradients.sweep import Walk, in_bytes
from bilevel.numerics.vectors import norm
from bilevel.oracles.plans import Descend, Retrace, Step, Sweep, Trace, do
from bilevel.oracles.points import Linear, Oracle
from bilevel.oracles.prices import Cost
from bilevel.problem.sampling import Streams
from bilevel.solvers.inner.base import GradientSteps, InnerSolution, InnerSolver
from bilevel.solvers.inner.steps import Move, Steps
from bilevel.solvers.linear.base import LinearSolution, LinearStatus
from bilevel.solvers.updates.base import Look, Memory
from bilevel.solvers.updates.descent import Descent

_MUCH = 0.1  # of ∇y f: a sweep that leaves more than this was too short
_ENOUGH = "256MB"  # for small networks on a current machine


@dataclass(frozen=True)
class ITD(Differentiation):
    """∂f(x, y^D(x))/∂x through the D inner steps y^{t+1} = y^t − α ∇y g(x, y^t).

    ∇x f(x, y^D) − α Σ_{t=0..D−1} ∇x∇y g(x, y^t) Π_{j=t+1..D−1} (I − α ∇²y g(x, y^j)) ∇y f(x, y^D)

    The sum is built backwards with D cross products and D − 1 Hessian-vector products. Graphs of
    the steps are kept as far as `memory` allows; the other steps are run again from stored
    iterates, on the same rows and with the same random draws.

    The remainder of the sweep, ‖Π_{j=1..D−1} (I − α ∇²y g) ∇y f‖, is reported as the residual of
    the linear solve that it amounts to; if that exceeds a tenth of ‖∇y f‖ the solve is
    "too_short": D is too small for this α and this conditioning.

    Args:
        truncate: how many steps, counted from the last, are differentiated; None means all of
            them, and 0 leaves only ∇x f: the first-order method.
        checkpoint: n stores only every n-th iterate and recomputes the others, one stretch at a
            time: less memory for up to D more gradients. None stores what `memory` allows.
        start: whether y^0 depends on x: `GivenStart()`, or `LearnedStart()`, which adds
            ∂y^0/∂x Π_{j=0..D−1} (I − α ∇²y g(x, y^j)) ∇y f(x, y^D). With truncation, the path to
            the start is cut.
        memory: how much the kept graphs may take, such as "256MB", or how many are kept at a time:
            1 keeps D vectors and one graph.
        batch: the rows of f; None means all rows.

    Reference: the paper, Proposition 2 and Algorithm 1 (ITD). Truncation: Shaban, Cheng, Hatch
    & Boots, "Truncated back-propagation for bilevel optimization", AISTATS 2019.

    Example:
        >>> import torch, bilevel
        >>> from bilevel.problem.examples import halves
        >>> problem = halves()
        >>> ten = bilevel.inner.GradientDescent(steps=10, lr=0.25)
        >>> bilevel.hypergradient(problem, problem.x0, problem.y0, bilevel.ITD(), ten).value
        tensor([-3.9961, -3.9961])
    """

    truncate: Natural | None = None
    checkpoint: Count | None = None
    start: Start = field(default_factory=GivenStart)
    memory: Count | str = _ENOUGH
    batch: Count | None = None

    takes = GradientSteps | Steps
    refusal = (
        "ITD differentiates gradient steps; {} is not made of them. "
        "Use GradientDescent, SGD or Steps, or AID, which takes any inner solver."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.memory, str):
            in_bytes(self.memory)

    def price(self, inner: InnerSolver, warm: bool) -> Cost:
        steps = inner.price()
        D = steps.gc_g or 0
        T = D if self.truncate is None else min(D, self.truncate)
        # Only the start may ask for the Hessian of the first step.
        hv = T if self.start.needs_last and T == D else max(0, T - 1)
        recomputes = self.checkpoint is not None or self.memory != _ENOUGH
        again = Cost(gc_g=None if recomputes else 0)
        return steps + again + Cost(gc_f=2, jv=T, hv=hv)

    def estimate(
        self, oracle: Oracle, stand: Stand, inner: InnerSolver, streams: Streams
    ) -> Estimate:
        self.check(inner)
        if isinstance(inner, Steps) or oracle.linear_bytes is not None:
            return self._through_moves(oracle, stand, inner, streams)
        # A closed form has no graphs to keep, and may take many steps at once.
        assert isinstance(inner, GradientSteps)
        x, steps = stand.x, inner.plan(oracle, stand.x, stand.y, streams)
        # Steps before `first` are taken but not differentiated: their iterates are not stored.
        first = 0 if self.truncate is None else max(0, len(steps) - self.truncate)
        y_D, stretches = self._descend(oracle, x, stand.y, steps, first)

        # Proposition 2 from its last factor on: h starts as ∇x f(x, y^D), r as ∇y f(x, y^D).
        h, r = oracle.outer(x, y_D, streams.rows("outer", self.batch)).gradient()
        whole = norm(r)
        sweep = Sweep(r, torch.zeros_like(r), h)
        last: Callable[[], Tensor] = r.clone
        for start, end, path in stretches:
            if start > first:
                sweep = do(Retrace(x, path, steps[start:end], sweep), oracle)
                continue
            # The first differentiated step is special: Proposition 2 has D cross products, but
            # D − 1 Hessian products. One more is needed only if the start depends on x.
            sweep = do(Retrace(x, path[1:], steps[start + 1 : end], sweep), oracle)
            around = oracle.linearize(x, path[0], steps[first].rows)
            sweep, last = _step_back(around, sweep, steps[first].lr)
        h = sweep.covector
        # A truncated sweep never reaches the start.
        if first == 0:
            h = self.start.add_covector(oracle, x, h, last)
        return Estimate(
            oracle.pull(x, h),
            InnerSolution(y_D, steps=len(steps)),
            self._linear(sweep.total, len(steps) - first, norm(sweep.r), whole),
        )

    def _through_moves(
        self, oracle: Oracle, stand: Stand, inner: InnerSolver, streams: Streams
    ) -> Estimate:
        """Back over steps of any update that has a transpose."""
        x = stand.x
        memory, moves, solution = _planned(oracle, stand, inner, streams)
        # What is cut off need not be stored.
        first = 0 if self.truncate is None else max(0, len(moves) - self.truncate)
        walk = Walk(oracle, x, moves, first, self.checkpoint or self.memory)
        found = solution(*walk.forward(stand.y, memory), moves)
        h, r = oracle.outer(x, found.y, streams.rows("outer", self.batch)).gradient()
        whole = norm(r)
        total, of_memory, of_x = torch.zeros_like(r), dict[str, Tensor](), list[Tensor]()
        for step, around in walk.back():
            # Covectors of point and memory are propagated together: momentum links the steps.
            back = step.transpose(r, of_memory)
            # For plain descent, minus the gradient's covector is α r, and the total is AID's v.
            total.sub_(back.gradient, alpha=back.scale)
            if back.of_x is not None:  # already a vector of x: not pulled
                of_x.append(back.of_x)
            if step.t > first or (first == 0 and self.start.needs_last):
                hvp, cross = around.both(back.gradient)
                h, r = h.add(cross, alpha=back.scale), back.point.add(hvp, alpha=back.scale)
                of_memory = back.memory
            else:  # Proposition 2 has D cross products, but D − 1 Hessian products
                h = h.add(around.cross(back.gradient), alpha=back.scale)
        if first == 0:
            h = self.start.add_covector(oracle, x, h, lambda: r)
        # With momentum, part of the remainder is in the memory's covectors.
        linear = self._linear(total, len(moves) - first, None if of_memory else norm(r), whole)
        return Estimate(sum(of_x, start=oracle.pull(x, h)), found, linear)

    def _linear(
        self, total: Tensor, terms: int, remainder: float | None, whole: float
    ) -> LinearSolution:
        """The linear solve that a sweep amounts to, with what is left of its right-hand side."""
        # If steps are cut on purpose, or the start takes the remainder, it is not an error.
        asked = self.truncate is not None or self.start.needs_last
        short = remainder is not None and not asked and remainder > _MUCH * whole
        status = LinearStatus.TOO_SHORT if short else LinearStatus.STEP_LIMIT
        return LinearSolution(total, status, terms, remainder)

    def _descend(
        self, oracle: Oracle, x: Tensor, y: Tensor, steps: list[Step], first: int
    ) -> tuple[Tensor, Iterator[tuple[int, int, Tensor]]]:
        """y^D, and stretches of steps, last first: where each begins and ends, and its y^t."""
        if first:
            y = do(Descend(x, y, steps[:first]), oracle)
        if self.checkpoint is None:
            path = do(Trace(x, y, steps[first:]), oracle)
            whole = [(first, len(steps), path[:-1])] if first < len(steps) else []
            # A copy: a view of the last row would keep the whole path alive in the state.
            return path[-1].clone(), iter(whole)
        kept = []
        # D/n vectors are kept, and n more while a stretch is retraced: n = √D needs least memory.
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
    """Back over the first step, where only the start may ask for the Hessian's product."""
    r, total, covector = sweep
    after = Sweep(r, total.add(r, alpha=alpha), covector.sub(around.cross(r), alpha=alpha))
    return after, lambda: r.sub(around.hvp(r), alpha=alpha)


def _planned(
    oracle: Oracle, stand: Stand, inner: InnerSolver, streams: Streams
) -> tuple[Memory, list[Move], Callable[..., InnerSolution]]:
    """The steps, their initial memory, and how to report where they have led."""
    if isinstance(inner, Steps):
        known, moves = inner.plan(stand.x, stand.y, streams, dict(stand.memory))
        return known, moves, inner.solution
    assert isinstance(inner, GradientSteps)
    steps = inner.plan(oracle, stand.x, stand.y, streams)
    descents = {lr: Descent(lr) for lr in {step.lr for step in steps}}
    moves = [Move(descents[lr], Look(t), rows) for t, (rows, lr) in enumerate(steps)]
    return {}, moves, lambda y, memory, moves: InnerSolution(y, steps=len(moves))
