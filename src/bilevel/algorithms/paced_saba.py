"""Compiled stretches of SABA for as long as they pay off, judged by Φ; then accurate steps.

For large sums whose model is in array code, where x holds logarithms of penalties or logits of
weights, so that one is a natural length for each of its entries. It takes no number:

- y and v move by a third of 1/L of the worst block that was measured, with penalties taken
  implicitly: no x makes them unstable.
- Each entry of x moves by at most η per step: its direction is divided by the root of its mean
  square (Adam with β₁ = 0). η is chosen so that a chapter of a few passes over the rows moves it
  by at most one at first, and by more later, as long as Φ falls as fast as before.
- After each chapter Φ is evaluated accurately on all rows. Where it has not fallen, the chapter is
  undone and the next one is a quarter as long; where it hardly falls any more, or three chapters
  have failed, `AnchoredAID` continues from the best point.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bilevel.algorithms.contract import Algorithm, Report, State
from bilevel.algorithms.registry import named
from bilevel.algorithms.saba import SABA
from bilevel.algorithms.tried_steps import Evaluation, quasi_newton
from bilevel.hypergradients.base import Stand
from bilevel.numerics.vectors import norm
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import Cost
from bilevel.oracles.views import View
from bilevel.problem.blocks import Blocks
from bilevel.problem.sampling import Streams
from bilevel.solvers.updates.adam import Adam
from bilevel.solvers.updates.implicit import ImplicitDescent

BLOCK = 64  # rows
_PASSES = 4.0  # over the rows, in a chapter
_FORGETS = 0.999  # what a step keeps of the mean squares
_LOOKS, _POWERS = 16, 8  # blocks whose curvature is measured, and products for each
_MARGIN = 1.5  # blocks that were not measured may have more curvature
_SHORTER, _LONGER, _LONGEST = 4.0, 2.0, 8.0
_FAILURES = 2  # chapters that may be undone
_WORTH = 0.02  # of the total decrease of Φ: a chapter that gains less is the last
_ROOM = 1 << 32  # numbers of steps for the chapters' random rows


@dataclass(frozen=True, kw_only=True)
class PacedSABA(Algorithm):
    """Chapters of SABA in compiled stretches, then `AnchoredAID`; `bilevel.chosen` takes it.

    Reference: Dagréou, Ablin, Vaiter & Moreau, NeurIPS 2022 (SABA).

    Example:
        >>> import torch, bilevel
        >>> from bilevel.algorithms.paced_saba import PacedSABA
        >>> X = torch.randn(3000, 3, generator=torch.Generator().manual_seed(0)).double()
        >>> b = (X[:, 0] > 0).long()
        >>> problem = bilevel.logistic_problem(
        ...     (X[:2000], b[:2000]), (X[2000:], b[2000:]), penalty=bilevel.PerFeature(scale=0.5))
        >>> result = bilevel.minimize(problem, PacedSABA(), steps=5)
        >>> int(result.x.argmin())  # the feature that decides is penalised least
        0
    """

    def init(self, oracle: Oracle, x0: Tensor, y0: Tensor) -> State:
        # Compiled here, before the clock of the first step: two steps that move nothing.
        _tables(oracle, {"x": x0, "y": y0, "v": torch.zeros_like(y0)}, 2)
        return State(0, {"x": x0.clone(), "y": y0.clone()}, {"x": {}})

    def step(self, view: View, state: State) -> tuple[State, Report]:
        if "share" in state.measured:  # which is AnchoredAID's
            return named("anchored-aid").algorithm().step(view, state)
        oracle, streams = view.whole, view.whole.streams(state.step)
        if "h" not in state.points:
            state = _begun(oracle, state, streams)
        before, sizes = state.points["h"], dict(state.measured)
        report = Report(before, norm(before), noisy=True)
        if not math.isfinite(sizes["value"]):
            return replace(state, step=state.step + 1), Report(before, math.inf, stuck=True)
        count = _steps(oracle)
        method = SABA(
            inner=ImplicitDescent(sizes["rate"]),
            outer=Adam(sizes["length"] / count, betas=(0.0, _FORGETS)),
            batch=Blocks(BLOCK),
        )
        done = replace(state, step=_ROOM + int(sizes["taken"]))
        after, _, _ = method.stretch(oracle, done, count)
        sizes["taken"] += count
        fallen = sizes["first"] - sizes["value"]
        there = None
        if after.is_finite():
            stand = Stand(after.x, after.y, after.points["v"], state.memory["v"], {})
            wanted = max(_WORTH * fallen, 1e-3 * abs(sizes["value"]))
            there = quasi_newton(drop=0.1).evaluate(oracle, stand, wanted, streams)
        if there is None or not (there.is_finite and there.value < sizes["value"]):
            sizes.update(failures=sizes["failures"] + 1, length=sizes["length"] / _SHORTER)
            if sizes["failures"] <= _FAILURES:
                return replace(state, step=state.step + 1, measured=sizes), report
            return _handed_over(oracle, state, state.x, state.points["best y"]), report
        gain = sizes["value"] - there.value
        if gain > sizes["gain"] / 2:  # there is still far to go
            sizes["length"] = min(_LONGER * sizes["length"], _LONGEST)
        sizes["gain"] = gain
        sizes["value"] = there.value
        if gain < _WORTH * (fallen + gain):
            return _handed_over(oracle, state, there.x, there.y), report
        points = {**after.points, "h": there.h, "best y": there.y}
        memory = {**after.memory, "v": dict(there.memory)}
        return State(state.step + 1, points, memory, after.tables, sizes), report

    def price(self, k: int) -> Cost:
        return Cost(None, None, None, None)


def _begun(oracle: Oracle, state: State, streams: Streams) -> State:
    """Φ at the start, what SABA remembers there, and the sizes of its steps."""
    stand = Stand(state.x, state.y, None, {}, {})
    here: Evaluation = quasi_newton(drop=0.1).evaluate(oracle, stand, None, streams)
    points = {"x": state.x, "y": here.y, "v": here.v}
    # Two passes: in one, the place of a last block that is shorter may be taken by another.
    blocks = -(-max(oracle.inner_rows or 0, oracle.outer_rows or 0) // BLOCK)
    empty = _tables(oracle, points, 2 * blocks)
    sizes = {
        "value": here.value,
        "first": here.value,
        "rate": 1 / (3 * _MARGIN * _curvature(oracle, here, streams)),
        "length": 1.0,
        "gain": 0.0,
        "failures": 0.0,
        "taken": 0.0,
    }
    memory: Mapping[str, dict[str, object]] = {
        "x": Adam(1.0).init(state.x),
        "y": {},
        "v": dict(here.memory),
    }
    kept = {**points, "h": here.h, "best y": here.y}
    return State(state.step, kept, memory, empty, sizes)


def _tables(oracle: Oracle, points: Mapping[str, Tensor], steps: int) -> dict[str, Tensor]:
    """SABA's tables at the start, filled by its own steps, which are too short to move anything."""
    sizes = {"g": "y", "Hv": "y", "Jv": "x", "f_x": "x", "f_y": "y"}
    made: dict[str, Tensor] = {}
    for name, like in sizes.items():
        rows = oracle.outer_rows if name.startswith("f") else oracle.inner_rows
        count = -(-(rows or 1) // BLOCK)
        made[name] = points[like].new_zeros(count, len(points[like]))
        made[f"mean {name}"] = points[like].new_zeros(1, len(points[like]))
    tiny = float(torch.finfo(points["x"].dtype).tiny)
    # Updates of the same kinds as in the chapters: others would be compiled separately.
    outer = Adam(tiny, betas=(0.0, _FORGETS))
    still = SABA(inner=ImplicitDescent(tiny), outer=outer, batch=Blocks(BLOCK))
    memory = {"x": outer.init(points["x"]), "y": {}, "v": {}}
    return dict(still.stretch(oracle, State(0, points, memory, made), steps)[0].tables)


def _handed_over(oracle: Oracle, state: State, x: Tensor, y: Tensor) -> State:
    fresh = named("anchored-aid").algorithm().init(oracle, x, y)
    return replace(fresh, step=state.step + 1)


def _steps(oracle: Oracle) -> int:
    return math.ceil(_PASSES * max(oracle.inner_rows or 0, oracle.outer_rows or 0) / BLOCK)


def _curvature(oracle: Oracle, here: Evaluation, streams: Streams) -> float:
    """The largest curvature of some blocks by the power method, without the penalty: at W = 0,
    where the losses of a linear model are most curved, and at the current point."""
    c, found = oracle.ridge(here.x), 0.0
    penalty = 0.0 if c is None else c.c
    for _ in range(_LOOKS):
        rows = streams.block("curvature", BLOCK).rows
        for y in (torch.zeros_like(here.y), here.y):
            around = oracle.linearize(here.x, y, rows)
            v = streams.normal(1, len(y))[0].to(y)
            for _ in range(_POWERS):
                v = v / norm(v)
                v = around.hvp(v) - penalty * v
            found = max(found, norm(v))
    return found
