"""Anchored AID: quasi-Newton steps on a few rows, corrected and judged by rare looks at many."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bilevel.algorithms.contract import Algorithm, Report, State
from bilevel.algorithms.looks import but, kept, lower, with_look, with_solution, without_look
from bilevel.algorithms.opening import belongs_to_rows, opened
from bilevel.algorithms.registry import register
from bilevel.algorithms.tried_steps import Evaluation, quasi_newton
from bilevel.hypergradients.base import Stand
from bilevel.numerics.vectors import norm
from bilevel.oracles.corrected import Corrected, Look, Sample
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import Cost
from bilevel.oracles.views import View
from bilevel.problem.sampling import first_of
from bilevel.problem.sources import Rows

_LEAST, _PER_Y, _MOST = 400, 32, 1 / 8  # the first sample: rows, rows per entry of y, share of all
_SMALL = 4096  # up to this many rows no share is too large: all of them are cheap
_ALL = 0.25  # a sample of more than this share of the rows is not worth its error
_WIDE = 16  # looks use this many times the rows of the sample, until noise hides h
_GROWTH = 4  # of the sample, or of the looks, if found too small
_AIM = 0.1  # a run on the sample ends once ‖h‖ has fallen to this fraction
_RUN = 200  # or after this many steps
_KNOWN = 0.5  # the fraction of the promised decrease by which Φ may be uncertain
_FOREIGN = 0.5  # the fraction of h that a sample may not see: beyond it, x belongs to rows
_REACH = 30.0  # the first run moves x at most this far, in its units: a model may fall for ever
_POOR, _PATIENCE = 0.5, 2  # less than this fraction of the promise, this often: too small a sample
# The deterministic rule on a model: a look follows, so rough solves will do.
_ROUGH = {"drop": 0.1, "first": 0.1}
_DENSE = 250  # up to this size the sample's H is built at once


@register(
    "anchored-aid",
    paper="our own; SVRG's correction (Johnson & Zhang, 2013) of L = f − ⟨v, ∇y g⟩",
    cost="as the accuracy of each tried step needs, on few rows; one of each per look at many",
    demo={},
    steps=30,
)
@dataclass(frozen=True, kw_only=True)
class AnchoredAID(Algorithm):
    """For sums of many rows: steps, lengths and curvature are found on a few rows.

    A look gives L = f − ⟨v, ∇y g⟩ and its gradient on many rows at one point, without an inner
    solve. The losses of a small sample, with linear terms that make value and gradient those of
    the look, are then minimised by `AIDQN`. The next look accepts or rejects the end by Φ, and
    shows whether so few rows suffice: the sample grows if Φ fell by less than promised, the looks
    if their noise hides ∇Φ. Where a quarter of the rows would be needed, or x has entries for
    single rows, it is `AIDQN` on all of them. There is nothing to choose.

    Example:
        >>> import torch, bilevel
        >>> rows = torch.randn(20000, 2, generator=torch.Generator().manual_seed(0)).double()
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y, batch: ((y - batch.data) ** 2).mean(),
        ...     inner=lambda x, y, batch: ((y - x - batch.data) ** 2).mean(),
        ...     x0=torch.ones(2).double(), y0=torch.zeros(2).double(),
        ...     outer_data=rows, inner_data=rows)
        >>> result = bilevel.minimize(problem, bilevel.algorithms.AnchoredAID(), steps=20, tol=1e-6)
        >>> str(result.status), bool(result.x.norm() < 1e-6)  # x* = 0
        ('converged', True)
    """

    descends = True

    def init(self, oracle: Oracle, x0: Tensor, y0: Tensor) -> State:
        n = max(oracle.inner_rows or 0, oracle.outer_rows or 0)
        share = max(_LEAST, _PER_Y * len(y0)) / max(n, 1)
        share = share if n <= _SMALL or share < _MOST else _MOST
        built = {"slow": 2.0 * len(y0)} if len(y0) <= _DENSE else {}
        none = x0.new_zeros(0, len(x0))
        start = State(
            0, {"x": x0.clone(), "y": y0.clone()}, {"x": {"s": none, "z": none}, "v": built}
        )
        radius = _REACH * max(1.0, float(x0.abs().max())) * math.sqrt(len(x0))
        measured = {"share": share, "wide": min(1.0, _WIDE * share), "radius": radius}
        return replace(start, measured=measured)

    def step(self, view: View, state: State) -> tuple[State, Report]:
        if state.measured["share"] > _ALL:
            return quasi_newton(**_ROUGH).step(view, lower(view.whole, state))
        if state.step == 0 and belongs_to_rows(view.whole, state.x, state.y):
            y = opened(view.whole, state.x, state.y, 1.0)
            return self._on_all_rows(view.whole, replace(state, points={**state.points, "y": y}))
        at = _Rows(view.whole, state)
        if "look h" not in state.points:
            state = at.first(state)
        look = kept(state)
        if not look.is_finite:
            return self._on_all_rows(view.whole, state)
        model = at.model(look, state.measured["radius"])
        if state.step == 0 and model.foreign > _FOREIGN * norm(look.h):
            return self._on_all_rows(view.whole, state)
        here = at.solve(model, look.x, look.y, look.v, state.memory["v"])
        if not here.is_finite:
            return at.grown(state), Report(look.h, norm(look.h), noisy=True)
        noise = at.noise(here, state.memory["v"])
        report = Report(here.h, norm(here.h), here.solves, noisy=noise > 0)
        known = with_solution(state, here)
        if norm(here.h) <= 2 * noise:  # hidden: look at more rows, at the same x
            return at.wider(known), report
        ended = at.descend(model, here, state)
        promised = here.value - ended.end.value
        if not promised > 0:
            return at.grown(known), report
        if abs(here.value - look.L) > _KNOWN * promised:
            return at.again(state, known, abs(here.value - look.L)), report
        return at.judge(known, here, ended, promised), report

    def _on_all_rows(self, oracle: Oracle, state: State) -> tuple[State, Report]:
        """The deterministic rule takes over; Φ is known as roughly as its first step needs."""
        state, began = lower(oracle, state), state.step + 1
        stand = Stand(state.x, state.y, state.points.get("v"), state.memory["v"])
        streams = oracle.streams(state.step)
        here = quasi_newton(**_ROUGH).evaluate(oracle, stand, math.inf, streams)
        after = without_look(state, share=1.0, wide=1.0, began=float(began))
        if here.is_finite:
            after = but(with_solution(after, here), value=here.value, slack=here.slack)
            after = replace(after, points={**after.points, "h": here.h})
        return replace(after, step=began), Report(here.h, norm(here.h), here.solves)

    def price(self, k: int) -> Cost:
        return Cost(None, None, None, None)


class _Ended(NamedTuple):
    """Where a run on the model ended, how far that is, and what it has learned."""

    end: Evaluation
    length: float
    state: State


class _Rows:
    """What one step does on the rows of its sample and of its looks."""

    def __init__(self, oracle: Oracle, state: State) -> None:
        self._oracle, self._streams = oracle, oracle.streams(state.step)
        self.share, self.wide = state.measured["share"], state.measured["wide"]
        self._sample = self._of(self.share)

    def _of(self, share: float) -> Oracle:
        if share >= 1:
            return self._oracle
        totals = (self._oracle.inner_rows, self._oracle.outer_rows)
        size = share * max(filter(None, totals))
        return Sample(self._oracle, *(self._rows(n, size) for n in totals))

    def _rows(self, total: int | None, size: float) -> Rows:
        """This many rows of one loss; of the smaller data as many as of the larger, or all."""
        return first_of(self._oracle.seed, total, min(1.0, size / total)) if total else None

    def first(self, state: State) -> State:
        """The state with its first look: at the start, where the sample's solution is."""
        if "v" not in state.points:
            found = self.solve(self._sample, state.x, state.y, None, state.memory["v"])
            if found.is_finite:
                state = with_solution(state, found)
                start = {"start x": found.x, "start y": found.y, "start v": found.v}
                # One that is known already is that of a method which has handed over.
                state = replace(state, points={**start, **state.points})
        if self.wide >= 1:
            state = lower(self._oracle, state)
        v = state.points.get("v", torch.zeros_like(state.y))
        return with_look(state, self.look(state.x, state.y, v))

    def look(self, x: Tensor, y: Tensor, v: Tensor) -> Look:
        return Look.at(self._of(self.wide), x, y, v)

    def model(self, look: Look, radius: float) -> Corrected:
        return Corrected(self._sample, look, radius)

    def solve(
        self, oracle: Oracle, x: Tensor, y: Tensor, v: Tensor | None, learned: Mapping[str, Any]
    ) -> Evaluation:
        """Φ and ∇Φ of a sample or a model, accurately: they cost next to nothing."""
        return quasi_newton().evaluate(oracle, Stand(x, y, v, learned), math.inf, self._streams)

    def noise(self, here: Evaluation, learned: Mapping[str, Any]) -> float:
        """How far h of the rows looked at may be from that of all rows.

        h of the sample differs from it by σ√(1/S − 1/A), which tells σ; and A rows are off by
        σ√(1/A − 1/n).
        """
        if self.wide >= 1:
            return 0.0
        own = self.solve(self._sample, here.x, here.y, here.v, learned)
        part = math.sqrt((1 / self.wide - 1) / (1 / self.share - 1 / self.wide))
        return norm(own.h - here.h) * part if own.is_finite else math.inf

    def descend(self, model: Corrected, here: Evaluation, state: State) -> _Ended:
        """The deterministic rule on the model, not further than the radius."""
        radius, goal = state.measured["radius"], _AIM * norm(here.h)
        points = {"x": here.x, "y": here.y, "v": here.v}
        at = State(0, points, {"x": state.memory["x"], "v": dict(here.memory)})
        view = View.of(model)
        for _ in range(_RUN):
            at, report = quasi_newton(**_ROUGH).step(view, at)
            far = norm(at.x - here.x) > radius
            if report.stuck or far or ("h" in at.points and norm(at.points["h"]) <= goal):
                break
        d = at.x - here.x
        length = norm(d)
        short = min(1.0, radius / length) if length else 1.0
        x = here.x.add(d, alpha=short)
        end = self.solve(model, x, at.y, at.points["v"], at.memory["v"])
        if not end.is_finite:
            end = here
        return _Ended(end, short * length, at)

    def judge(self, state: State, here: Evaluation, ended: _Ended, promised: float) -> State:
        """The state after a look at the end of a run: there, if Φ fell as promised; else here."""
        end, length = ended.end, ended.length
        radius = state.measured["radius"]
        hold = max(2 * length, radius)
        y, v, there = end.y, end.v, None
        for _ in range(2):
            look = self.look(end.x, y, v)
            if not look.is_finite or look.L - here.value > 3 * promised:
                break
            found = self.solve(self.model(look, hold), look.x, y, v, ended.state.memory["v"])
            if not found.is_finite:
                break
            if abs(found.value - look.L) <= _KNOWN * promised:
                there = found
                break
            y, v = found.y, found.v
        fall = -math.inf if there is None else here.value - there.value
        eps = float(torch.finfo(here.x.dtype).eps)
        rounding = 20 * eps * abs(here.value)
        poor = state.measured.get("poor", 0.0) + 1 if fall < _POOR * promised else 0.0
        measured = {**state.measured, "poor": poor}
        if there is not None and fall >= 1e-4 * promised - rounding:
            if fall > _POOR * promised:
                measured["radius"] = max(radius, 4 * length)
            measured["asked"] = math.inf
            memory = {"x": ended.state.memory["x"], "v": dict(there.memory)}
            state = with_look(replace(state, memory=memory, measured=measured), look)
            state = with_solution(replace(state, points={**state.points, "x": look.x}), there)
        else:
            measured["radius"] = length / 4
            none = {name: kept[:0] for name, kept in state.memory["x"].items()}
            memory = {**state.memory, "x": none}
            state = replace(state, memory=memory, measured=measured)
        if poor >= _PATIENCE:
            return self.grown(replace(state, measured={**state.measured, "poor": 0.0}))
        return replace(state, step=state.step + 1)

    def grown(self, state: State) -> State:
        """A larger sample; if the looks are at more rows too, the last one is void."""
        share = self.share * _GROWTH
        wide = min(1.0, max(self.wide, _WIDE * share))
        if share > _ALL or self.wide < 1:
            state = without_look(state, share=share, wide=wide)
        else:
            state = but(state, share=share)
        return replace(but(state, asked=math.inf), step=state.step + 1)

    def wider(self, state: State) -> State:
        wide = min(1.0, self.wide * _GROWTH)
        after = without_look(state, share=self.share, wide=wide, asked=math.inf)
        return replace(after, step=state.step + 1)

    def again(self, before: State, known: State, moved: float) -> State:
        """Φ was not known at the look: look again where the model's solution is, or grow."""
        asked = before.measured.get("asked", math.inf)
        if moved > asked / 2:  # the last look at the same x did not help: nor does this solution
            return self.grown(before)
        after = without_look(known, share=self.share, wide=self.wide)
        return replace(but(after, asked=moved), step=known.step + 1)
