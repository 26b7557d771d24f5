"""Stochastic implicit steps in array code: `oracles.plans.Implicit` and the move of x, many times.

This is what BSA, TTSA and stocBiO are made of, between two evaluations.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bilevel.algorithms.contract import Algorithm, Report, Solve, State
from bilevel.algorithms.parts import Parts
from bilevel.algorithms.stretched import ahead, by_steps, in_array_code, taken
from bilevel.hypergradients.aid import AID
from bilevel.hypergradients.starts import GivenStart
from bilevel.kernels.array_code import (
    Chains,
    Triple,
    batch,
    batch_of,
    count,
    cross,
    hessian,
    minus,
    moved,
    number,
    outer,
    own,
    plus,
    pull,
    scaled,
    slope,
)
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import CROSS, GRADIENT, HVP, OUTER
from bilevel.oracles.stretches import Stretch
from bilevel.problem.ahead import Ahead, Array
from bilevel.solvers.inner.base import InnerStatus
from bilevel.solvers.inner.gradient_descent import SGD
from bilevel.solvers.linear.base import LinearStatus
from bilevel.solvers.linear.random_truncation import RandomTruncation
from bilevel.solvers.linear.sampled_neumann import SampledNeumann


class InnerSteps(NamedTuple):
    """For K outer steps: how many steps y takes in each, and their rates, (K, largest count)."""

    counts: Array
    rates: Array


def _directions(
    oracle: Any, now: Triple, tables: Any, draws: Chains, numbers: Any, k: int
) -> Triple:
    x, y = now.x, own(now.y)
    eta, scale = number(numbers, k, 0), number(numbers, k, 1)
    S, D_F, B, D_G = draws
    # The paper, Algorithm 2, lines 4 to 7: D steps, each on a batch of its own.
    for t in range(count(S, k)):
        y = moved(y, slope(oracle, x, y, batch_of(S, k, t)), number(numbers, k, 3 + t))
    # Lines 9 and 10, with Algorithm 3: r ← (I − η H(B_t)) r from ∇y f on.
    f_x, f_y = outer(oracle, x, y, batch(D_F, k))
    r, total = own(f_y), own(f_y)
    for t in range(count(B, k)):
        r = moved(r, hessian(oracle, x, y, r, batch_of(B, k, t)), eta)
        total = plus(total, r)
    # All terms are stocBiO's sum; the last alone is the random truncation of BSA and TTSA.
    v = scaled(total if number(numbers, k, 2) > 0 else r, scale)
    # Lines 11 and 12.
    Jv = cross(oracle, x, y, v, batch(D_G, k))
    return Triple(pull(oracle, x, minus(f_x, Jv)), y, v)


def are_plain(parts: Parts) -> bool:
    """Whether these are the parts of such steps: SGD, and a series on batches of one size."""
    kinds = type(parts.inner), type(parts.hypergradient), type(parts.start)
    if kinds != (SGD, AID, GivenStart) or parts.warm_v or not in_array_code(parts.outer):
        return False
    assert isinstance(parts.hypergradient, AID)
    solver = parts.hypergradient.solver
    if isinstance(solver, SampledNeumann):
        return solver.batch is not None and solver.strong_convexity is None
    return isinstance(solver, RandomTruncation) and solver.batch is not None


def stretch(
    method: Algorithm, parts: Parts, oracle: Oracle, state: State, inner: InnerSteps
) -> tuple[State, Report, Tensor]:
    """As many outer steps as `inner` describes."""
    steps = len(inner.counts)
    v = state.points.get("v", torch.zeros_like(state.y))
    memory, ks = state.memory["x"], range(state.step, state.step + steps)
    rates = parts.outer.rates(memory, ks)[:, None].repeat(3, axis=1)
    draws, series = _drawn(parts, ahead(oracle, state, steps), inner.counts)
    asked = zip((GRADIENT, OUTER, HVP, CROSS), draws, strict=True)
    dtype = state.x.numpy().dtype
    plan = Stretch(
        text=_directions,
        move=type(parts.outer).moves,
        points=Triple(state.x, state.y, v),
        memory=memory,
        tables={},
        draws=draws,
        rates=rates.astype(dtype),
        numbers=np.hstack([np.tile(series, (steps, 1)), inner.rates]).astype(dtype),
        constants=np.array(parts.outer.constants()),
        kept=np.array([False, True, True]),
        implicit=False,
        prices=list(asked),
        by_steps=lambda oracle: by_steps(method, oracle, state, steps),
    )
    last = int(inner.counts[-1]), int(draws.hessian.counts[-1])
    solves = (
        Solve("inner", str(InnerStatus.STEP_LIMIT), last[0]),
        Solve("linear", str(LinearStatus.STEP_LIMIT), last[1]),
    )
    return taken(plan, oracle, state, parts.outer, parts.noisy, solves)


def _drawn(parts: Parts, given: Ahead, counts: Array) -> tuple[Chains, tuple[float, ...]]:
    """The batches; and η, the scale of v and whether all terms are summed."""
    aid, descent = parts.hypergradient, parts.inner
    assert isinstance(aid, AID)
    assert isinstance(descent, SGD)
    solver = aid.solver
    assert isinstance(solver, SampledNeumann | RandomTruncation)
    assert isinstance(solver.lr, float)
    lr = solver.lr
    if isinstance(solver, RandomTruncation):
        terms, series = given.below(solver.terms), (lr, solver.terms * lr, 0.0)
    else:
        terms, series = np.full(len(counts), solver.terms), (lr, lr, 1.0)
    batches = given.batches("inner", descent.batch, counts)
    outer, cross = given.rows("outer", aid.batch.outer), given.rows("cross", aid.batch.cross)
    return Chains(batches, outer, given.batches("hessian", solver.batch, terms), cross), series
