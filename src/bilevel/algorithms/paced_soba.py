"""Compiled stretches of SOBA from the first rows on, judged by looks; then accurate steps.

For sums of so many rows that a first accurate solve takes as long as thousands of its steps, with
a model in array code whose x holds logarithms of penalties, so that one is a natural length for
each of its entries. It takes no number, and solves nothing:

- In the first chapter x stays, until y and v have come near their solutions.
- Each further chapter has twice as many steps. y and v move by 1/L of the worst block that was
  measured, with penalties taken implicitly, and less from chapter to chapter; each entry of x by a
  part of a length, divided by the root of its direction's mean square.
- Looks at both ends of a chapter, on the same rows, tell whether Φ has fallen. If it has not, x
  goes back, and in the next chapter a quarter as far; where it hardly falls any more, or ∇Φ
  promises hardly anything, or four chapters have failed, `AnchoredAID` continues.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from bilevel.algorithms.contract import Algorithm, Report, State
from bilevel.algorithms.registry import named
from bilevel.algorithms.soba import SOBA
from bilevel.numerics.vectors import dot, norm
from bilevel.oracles.corrected import Look, Sample
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import Cost
from bilevel.oracles.views import View
from bilevel.problem.blocks import Blocks
from bilevel.solvers.measured import Measured
from bilevel.solvers.updates.adam import Adam
from bilevel.solvers.updates.implicit import ImplicitDescent

_BLOCK = 64  # rows
_FIRST = 256  # steps of the first chapter
_PASSES = 4.0  # over the rows, in a chapter at most
_SHARE = 8  # looks are at this part of the rows that a chapter reads
_RATE, _BLOCKS = Measured(1.5, products=4), 8  # of y and v: other blocks may have more curvature
_HALVED = 192  # steps after which the rate has halved: it falls as one over the root
_FORGETS, _EPSILON = 0.999, 1e-15  # of the mean squares; far below any scale of Φ
_LENGTH, _SHORTER, _LONGER, _LONGEST = 4.0, 4.0, 2.0, 8.0
_FAILURES = 3  # chapters in which x may go back
_WORTH = 0.002  # of the total decrease of Φ: a chapter that gains less is the last
_ROOM = 1 << 32  # numbers of steps for the chapters' random rows


@dataclass(frozen=True, kw_only=True)
class PacedSOBA(Algorithm):
    """Chapters of SOBA in compiled stretches, then `AnchoredAID`; `bilevel.chosen` takes it.

    Reference: Dagréou, Ablin, Vaiter & Moreau, NeurIPS 2022 (SOBA).

    Example:
        >>> import torch, bilevel
        >>> from bilevel.algorithms.paced_soba import PacedSOBA
        >>> X = torch.randn(6000, 3, generator=torch.Generator().manual_seed(0)).double()
        >>> b = (X[:, 0] > 0).long()
        >>> problem = bilevel.logistic_problem(
        ...     (X[:4000], b[:4000]), (X[4000:], b[4000:]), penalty=bilevel.PerFeature(scale=0.5))
        >>> result = bilevel.minimize(problem, PacedSOBA(), steps=5)
        >>> int(result.x.argmin())  # the feature that decides is penalised least
        0
    """

    descends = True

    def init(self, oracle: Oracle, x0: Tensor, y0: Tensor) -> State:
        points = {"x": x0.clone(), "y": y0.clone(), "v": torch.zeros_like(y0)}
        state = State(0, points, {"x": Adam(1.0).init(x0), "y": {}, "v": {}})
        # Compiled here, before the clock of the first step: two steps that move nothing.
        tiny = float(torch.finfo(x0.dtype).tiny)
        _taken(oracle, state, 2, tiny, tiny)
        return state

    def step(self, view: View, state: State) -> tuple[State, Report]:
        oracle, sizes = view.whole, dict(state.measured)
        if not sizes:
            if (begun := _begun(oracle, state)) is not None:
                return begun
            state = replace(_handed_over(oracle, state, state), step=state.step)
        if "share" in state.measured:  # which is AnchoredAID's
            return named("anchored-aid").algorithm().step(view, state)
        count, taken = int(sizes["steps"]), sizes["taken"]
        rate = sizes["rate"] / math.sqrt(1 + 3 * taken / _HALVED)
        after = _taken(oracle, state, count, rate, sizes["length"] / count)
        sizes.update(taken=sizes["taken"] + count, steps=min(2 * count, max(count, _most(oracle))))
        some = _some(oracle, state, count * _BLOCK // _SHARE)
        before, there = (_measured(some, at) for at in (state, after))
        gain = before.L - there.L
        if not (after.is_finite() and gain > 0):
            sizes.update(failures=sizes["failures"] + 1, length=sizes["length"] / _SHORTER)
            report = _report(oracle, state, count)
            if there.g < before.g:  # y and v have gone on, and need not again
                kept = {name: after.points[name] for name in ("y", "v")}
                state = replace(state, points={**state.points, **kept})
            if sizes["failures"] <= _FAILURES:
                return replace(state, step=state.step + 1, measured=sizes), report
            return _handed_over(oracle, state, state), report
        report = _report(oracle, after, count)
        if gain > sizes["gain"] / 2:  # there is still far to go
            sizes["length"] = min(_LONGER * sizes["length"], _LONGEST)
        sizes.update(gain=gain, fallen=sizes["fallen"] + gain)
        # Where ∇Φ promises nothing, only y and v still move: x would go on for nothing.
        promised = sizes["length"] * float(report.direction.abs().sum())
        if min(gain, promised) < _WORTH * sizes["fallen"]:
            return _handed_over(oracle, state, after), report
        return replace(after, step=state.step + 1, measured=sizes), report

    def price(self, k: int) -> Cost:
        return Cost(None, None, None, None)


def _begun(oracle: Oracle, state: State) -> tuple[State, Report] | None:
    """The first chapter: y and v at the start; None if no step is short enough to lower ‖∇y g‖."""
    x, y = state.x, state.y
    blocks = oracle.streams(0).batches("curvature", Blocks(_BLOCK), _BLOCKS)
    rate = min(_RATE.of(oracle.linearize(x, y, rows).hvp, y) for rows in blocks)
    tiny, some = float(torch.finfo(x.dtype).tiny), _some(oracle, state, _FIRST * _BLOCK // _SHARE)
    most = _measured(some, state).g
    for _ in range(_FAILURES):
        after = _taken(oracle, state, _FIRST, rate, tiny)
        if after.is_finite() and _measured(some, after).g < most:
            break
        rate /= _SHORTER
    else:
        return None
    start = {"start y": after.y, "start v": after.points["v"]}
    points = {**after.points, "x": x, "start x": x, **start}
    sizes = {"rate": rate, "length": _LENGTH, "gain": 0.0, "fallen": 0.0, "failures": 0.0}
    sizes.update(taken=float(_FIRST), steps=float(_FIRST))
    memory = {**after.memory, "x": Adam(1.0).init(x)}
    begun = State(state.step + 1, points, memory, measured=sizes)
    return begun, _report(oracle, begun, _FIRST)


def _taken(oracle: Oracle, state: State, count: int, rate: float, length: float) -> State:
    """The state after some steps of SOBA, on blocks of their own."""
    outer = Adam(length, betas=(0.0, _FORGETS), epsilon=_EPSILON)
    method = SOBA(inner=ImplicitDescent(rate), outer=outer, batch=Blocks(_BLOCK))
    at = replace(state, step=_ROOM + int(state.measured.get("taken", 0)))
    return method.stretch(oracle, at, count)[0]


class _Measured(NamedTuple):
    """L and ‖∇y g‖."""

    L: float
    g: float


def _measured(oracle: Oracle, at: State) -> _Measured:
    g = oracle.inner(at.x, at.y).gradient()
    return _Measured(float(oracle.outer(at.x, at.y).value()) - dot(at.points["v"], g), norm(g))


def _report(oracle: Oracle, at: State, count: int) -> Report:
    """∇Φ as far as the end of a chapter knows it, on fewer rows than Φ: it decides little."""
    some = _some(oracle, at, count * _BLOCK // (4 * _SHARE))
    h = Look.at(some, at.x, at.y, at.points["v"]).h
    return Report(h, norm(h), noisy=True)


def _some(oracle: Oracle, at: State, rows: int) -> Oracle:
    """This many random rows of each loss, or all."""
    streams, totals = oracle.streams(at.step), (oracle.inner_rows, oracle.outer_rows)
    inner, outer = (min(rows, total or 0) or None for total in totals)
    return Sample(oracle, streams.rows("inner", inner), streams.rows("outer", outer))


def _most(oracle: Oracle) -> int:
    return math.ceil(_PASSES * max(oracle.inner_rows or 0, oracle.outer_rows or 0) / _BLOCK)


def _handed_over(oracle: Oracle, before: State, at: State) -> State:
    """AnchoredAID's first state; it will compare what it ends at with the start."""
    fresh = named("anchored-aid").algorithm().init(oracle, at.x, at.y)
    start: Mapping[str, Tensor] = {
        name: point for name, point in before.points.items() if name.startswith("start ")
    }
    return replace(fresh, step=before.step + 1, points={**fresh.points, **start})
