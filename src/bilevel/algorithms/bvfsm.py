"""BVFSM: the inner problem's value function behind a logarithmic barrier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from bilevel.algorithms.contract import State
from bilevel.algorithms.registry import register
from bilevel.algorithms.single_loop import Directions, SingleLoop
from bilevel.arguments import NonNegative, Positive, Schedule, at, positive, steps_at
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import OUTER, Cost
from bilevel.problem.sampling import Streams
from bilevel.problem.sources import Rows
from bilevel.solvers.updates.base import Update

_HALVINGS = 30


@register(
    "bvfsm",
    paper="Liu, Liu, Zeng & Zhang, 2021 (BVFSM)",
    cost="Gc(f) 2T + 2, Gc(g) 2T + 2 (two of them ∇x g), JV 0, HV 0",
    demo={"inner_steps": 5, "inner_lr": 0.3, "outer_lr": 0.1, "barrier": 1e-3, "ridge": 0.0},
    steps=200,
    bias="O(√σ + μ)",
)
@dataclass(frozen=True, kw_only=True)
class BVFSM(SingleLoop):
    """min f − σ log(g*_μ(x) + σ − g(x, y)): y may be slightly suboptimal if that lowers f.

        T times:  z ← z − α (∇y g(x, z) + μ z);     g*_μ = g(x, z) + μ ‖z‖²/2
        w = σ/(g*_μ + σ − g(x, y))
        T times:  y ← y − P⁻¹ (∇y f(x, y) + w ∇y g(x, y) + μ y)
        x ← x − γ (∇x f(x, y) + w (∇x g(x, y) − ∇x g(x, z)))

    P = (1 + w)/α + (w²/σ) ∇y g ∇y gᵀ bounds the curvature. A step of y that would cross the barrier
    is halved until it does not; if x has moved the barrier past y, so is the way from z to y. g
    need not be strongly convex: among several inner solutions, the one with the lowest f is found.

    Args:
        inner_steps: T, or a schedule k -> T_k.
        inner_lr: α, at most 1/L; or a schedule.
        barrier: σ, or a schedule k -> σ_k; in the paper it falls as 1/k.
        ridge: μ, or a schedule k -> μ_k; in the paper it falls as 1/k.
        outer_lr: γ, by default 0.1.
        batch: the rows of g and of f in a step; None is all rows, as in the paper.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> algorithm = bilevel.algorithms.BVFSM(
        ...     inner_lr=0.25, outer_lr=0.1, barrier=1e-4, ridge=0.0)
        >>> result = bilevel.minimize(halves(), algorithm, steps=150)
        >>> bool((result.x - 0.5).norm() < 0.01)
        True
    """

    inner_steps: int | Schedule = 10
    inner_lr: Positive | Schedule = 0.1
    barrier: Positive | Schedule = 1e-3
    ridge: NonNegative | Schedule = 1e-4

    others = "z"

    def updates(self) -> Mapping[str, Update]:
        return {"x": self.moves_x(0.1)}

    def directions(self, oracle: Oracle, state: State, streams: Streams) -> Directions:
        x, y, z, k = state.x, state.y, state.points["z"], state.step
        S, R = streams.rows("inner", self.batch), streams.rows("outer", self.batch)
        lr, ridge = positive("inner_lr", at(self.inner_lr, k)), at(self.ridge, k)
        sigma, T = positive("barrier", at(self.barrier, k)), steps_at(self.inner_steps, k)
        for _ in range(T):
            z = z.sub(oracle.inner(x, z, S).gradient().add(z, alpha=ridge), alpha=lr)
        level = oracle.inner(x, z, S).value() + ridge * z.square().sum() / 2 + sigma
        y = _halved(oracle, x, z, z - y, S, level)  # the last y, or as much of the way to it
        for _ in range(T):
            here = oracle.inner(x, y, S)
            w = sigma / (level - here.value())
            g_y = here.gradient()
            d = oracle.outer(x, y, R).gradient()[1] + w * g_y + ridge * y
            # P⁻¹d with P = (1 + w)/α + (w²/σ) ∇y g ∇y g': the barrier's own curvature along ∇y g is
            # far larger than that of the losses, and would ask for far shorter steps.
            short, bend = lr / (1 + w), w**2 / sigma
            along = short * bend * (g_y @ d) / (1 + short * bend * (g_y @ g_y))
            y = _halved(oracle, x, y, short * (d - along * g_y), S, level)
        here = oracle.inner(x, y, S)
        w = sigma / (level - here.value())
        f_x, _ = oracle.outer(x, y, R).gradient()
        gap = here.gradient_x() - oracle.inner(x, z, S).gradient_x()
        return Directions({"x": oracle.pull(x, f_x + w * gap)}, kept={"y": y, "z": z})

    def price(self, k: int) -> Cost:
        return Cost(*OUTER) + Cost(
            gc_f=2 * steps_at(self.inner_steps, k), gc_g=2 * steps_at(self.inner_steps, k) + 2
        )


def _inside(oracle: Oracle, x: Tensor, y: Tensor, rows: Rows, level: Tensor) -> bool:
    return bool(oracle.inner(x, y, rows).value() < level)


def _halved(
    oracle: Oracle, x: Tensor, y: Tensor, step: Tensor, rows: Rows, level: Tensor
) -> Tensor:
    """y − step, or as much of it as stays inside the barrier."""
    for _ in range(_HALVINGS):
        moved = y - step
        # What is not finite goes on: the run is to see that it diverged.
        if _inside(oracle, x, moved, rows, level) or not torch.isfinite(moved).all():
            return moved
        step = step / 2
    return y
