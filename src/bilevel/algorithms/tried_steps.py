"""The loop of methods whose steps are tried: re-solved at the new x, and taken only if Φ fell."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from bilevel.algorithms.contract import Algorithm, Report, Solve, State
from bilevel.algorithms.registry import named
from bilevel.arguments import Positive
from bilevel.hypergradients.base import Stand
from bilevel.numerics.vectors import norm
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import Cost
from bilevel.oracles.views import View
from bilevel.problem.sampling import Streams
from bilevel.solvers.updates.quasi_newton import in_metric

_ARMIJO = 1e-4  # the fraction of the decrease promised by the slope that must be achieved
_GUESSED = 0.1  # and by a first step, whose length is a guess: too long, it ends on a plateau
SLACK = 0.1  # the fraction of the wanted decrease by which Φ may be wrong
_GROW = 10.0  # a step is at most this many times the longest one since the last cut
# Pairs of differences: as many as 200,000 entries hold, between these bounds. Where Φ is badly
# conditioned, 20 pairs need several times as many steps as 100.
_FEWEST, _MOST, _ENTRIES = 20, 100, 200_000
_CUTS = 60  # trials of one step, each at most half as long as the one before
_TIGHTEST = 1e-6  # however many steps fail, tolerances are not tightened further


@dataclass(frozen=True)
class Evaluation:
    """Φ and ∇Φ at an x, with what they rest on.

    Args:
        x, y, v: the point, the inner solution there, and that of the linear system.
        h: ∇Φ(x).
        value: Φ(x) ≈ f(x, y) − ⟨v, ∇y g(x, y)⟩, wrong in second order only.
        slack: |⟨v, ∇y g(x, y)⟩|, how far f(x, y) is from that.
        solves: how they went.
        memory: what they have learned, for the next ones: plain data.
    """

    x: Tensor
    y: Tensor
    v: Tensor
    h: Tensor
    value: float
    slack: float
    solves: tuple[Solve, ...] = ()
    memory: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.value) and math.isfinite(norm(self.h))


class Course(NamedTuple):
    """A direction for x, the slope of Φ along it, the first length to try, and what it must gain.

    The last is a fraction of the decrease that the slope promises.
    """

    d: Tensor
    slope: float
    t: float
    share: float = _ARMIJO


@dataclass(frozen=True, kw_only=True)
class TriedSteps(Algorithm):
    """Quasi-Newton steps on Φ. x only moves to points where Φ was found lower.

    A method says how Φ and ∇Φ are evaluated at an x, from the y and v of the last accepted point;
    the loop below chooses the direction (L-BFGS), tries a length, and cuts it until Φ has
    verifiably fallen. There is nothing to choose: no learning rate, and no scale.

    Reference: L-BFGS, Liu & Nocedal, 1989; Armijo's condition, Nocedal & Wright, "Numerical
    optimization", Section 3.1.

    Args:
        first: the largest entry of the first step, in units of max(1, max |x0|); later steps grow.
    """

    first: Positive = 1e-3

    descends = True

    @abstractmethod
    def evaluate(
        self, oracle: Oracle, stand: Stand, wanted: float | None, streams: Streams
    ) -> Evaluation:
        """Φ and ∇Φ at stand.x, with a slack of at most a tenth of the wanted decrease.

        None wants ∇Φ itself to be accurate. `stand.measured["tighter"]` is a factor on the solves'
        tolerances, below 1 once they have proved too inaccurate to go on with.
        """

    def course(
        self, oracle: Oracle, here: Evaluation, state: State, model: Course, sizes: dict[str, float]
    ) -> Course:
        """The course to take from here, given that of the quasi-Newton model, which is the default.

        `sizes` may be changed, for the next step.
        """
        return model

    def init(self, oracle: Oracle, x0: Tensor, y0: Tensor) -> State:
        none = x0.new_zeros(0, len(x0))
        return State(0, {"x": x0.clone(), "y": y0.clone()}, {"x": {"s": none, "z": none}})

    def step(self, view: View, state: State) -> tuple[State, Report]:
        oracle, streams = view.whole, view.whole.streams(state.step)
        here = self.here(oracle, state, streams)
        size = norm(here.h)
        if not here.is_finite:
            # An infinite norm tells the run that this is divergence, and not the end of the way.
            end = Report(here.h, math.inf, here.solves, stuck=True)
            return replace(state, step=state.step + 1), end
        pairs, sizes = pairs_of(state), dict(state.measured)
        if size == 0:
            after = _state(state.step + 1, here, pairs, sizes)
            return after, Report(here.h, size, here.solves, stuck=True)
        model = self._model(here, state)
        if here.slack > -model.t * model.slope / 2:
            # Φ is not known well enough here to tell whether such a step lowers it.
            stand = Stand(here.x, here.y, here.v, here.memory, sizes)
            again = self.evaluate(oracle, stand, -model.t * model.slope, streams)
            if again.is_finite and norm(again.h) > 0:
                here, size, model = again, norm(again.h), self._model(again, state)
        course = self.course(oracle, here, state, model, sizes)
        there, cut = self.tried(oracle, here, course, streams, sizes)
        if there is None or torch.equal(there.x, here.x):  # none found, or x's rounding hides it
            return self.begin_again(state, here, sizes, course.t * float(course.d.abs().max()))
        d, slope = course.d, course.slope
        s, z = there.x - here.x, there.h - here.h
        length = float(s.abs().max())
        # A pair without positive curvature would cost L-BFGS its positive definite matrix.
        if float(s @ z) > 1e-8 * norm(s) * norm(z):
            pairs = {"s": torch.cat([pairs["s"], s[None]]), "z": torch.cat([pairs["z"], z[None]])}
        else:  # no curvature to learn from: go on further
            sizes["fresh"] = _GROW * length
            # Φ bends down: what was learned before does not hold here.
            if float(there.h @ d) < 0.9 * slope:
                pairs = {name: kept[:0] for name, kept in pairs.items()}
        sizes["longest"] = length if cut else max(length, sizes.get("longest", 0.0))
        sizes.pop("looked", None)
        memory = max(_FEWEST, min(_MOST, _ENTRIES // len(s)))
        last = {name: kept[-memory:] for name, kept in pairs.items()}
        return _state(state.step + 1, there, last, sizes), Report(here.h, size, there.solves)

    def _model(self, here: Evaluation, state: State) -> Course:
        """The step of L-BFGS, not much longer than those that have worked so far."""
        pairs, sizes = pairs_of(state), state.measured
        d, slope = _direction(pairs["s"], pairs["z"], here.h)
        largest = float(d.abs().max())
        if len(pairs["s"]):
            # The first length was a guess: the second may be far longer.
            grow = _GROW if state.step > 1 + sizes.get("began", 0) else 100 * _GROW
            return Course(d, slope, min(1.0, grow * sizes.get("longest", largest) / largest))
        fresh = sizes.get("fresh", self.first * max(1.0, float(here.x.abs().max())))
        t = min(fresh / largest, float(torch.finfo(d.dtype).max))  # d may be next to nothing
        return Course(d, slope, t, _ARMIJO if "longest" in sizes else _GUESSED)

    def begin_again(
        self, state: State, here: Evaluation, sizes: dict[str, float], length: float
    ) -> tuple[State, Report]:
        """After a step for which no length was found: Φ, its model, or the solves are at fault.

        Φ is looked at again; then without the pairs, then with tighter solves, twice; then there is
        nothing left to try.
        """
        pairs = pairs_of(state)
        if "h" in state.points and "looked" not in sizes:
            sizes["looked"] = 1.0
            after = _without_h(_state(state.step + 1, here, pairs, sizes))
            return after, Report(here.h, norm(here.h), here.solves)
        none = {name: kept[:0] for name, kept in pairs.items()}
        sizes["fresh"] = 1e-3 * length
        if not len(pairs["s"]):
            sizes["tighter"] = max(sizes.get("tighter", 1.0) * 1e-3, _TIGHTEST)
        after = _state(state.step + 1, here, none, sizes)
        stuck = state.measured.get("tighter", 1.0) <= _TIGHTEST and not len(pairs["s"])
        if not len(pairs["s"]) and not stuck:
            after = _without_h(after)
        return after, Report(here.h, norm(here.h), here.solves, stuck=stuck)

    def here(self, oracle: Oracle, state: State, streams: Streams) -> Evaluation:
        """What is known of the current point; only at the start does it have to be computed."""
        points, learned = state.points, state.memory.get("v", {})
        if "h" not in points:
            stand = Stand(state.x, state.y, points.get("v"), learned, state.measured)
            return self.evaluate(oracle, stand, None, streams)
        value, slack = state.measured["value"], state.measured["slack"]
        return Evaluation(state.x, state.y, points["v"], points["h"], value, slack, (), learned)

    def tried(
        self,
        oracle: Oracle,
        here: Evaluation,
        course: Course,
        streams: Streams,
        sizes: dict[str, float],
    ) -> tuple[Evaluation | None, bool]:
        """A lower point along d, and whether the step had to be cut for it."""
        d, slope, t, share = course
        eps = float(torch.finfo(here.x.dtype).eps)
        first = t
        rounding = 20 * eps * abs(here.value)
        for _ in range(_CUTS):
            wanted = -t * slope
            # Φ here, kept from an earlier step, is not known well enough for so short a step.
            if not here.solves and "looked" not in sizes and here.slack > max(wanted / 2, rounding):
                sizes["longest"] = sizes["fresh"] = t * float(d.abs().max())
                break
            # What was learned at a rejected point may be far from what holds here.
            stand = Stand(here.x.add(d, alpha=t), here.y, here.v, here.memory, sizes)
            there = self.evaluate(oracle, stand, wanted, streams)
            # A rise of this much may be rounding, or an error of the value that we compare with.
            noise = rounding + SLACK * min(here.slack, wanted)
            if not there.is_finite or there.slack > max(wanted / 2, noise):
                t *= 0.05  # Φ is not known there
            else:
                rise = there.value - here.value
                if rise <= share * t * slope + noise:
                    # A fall that is no more than what is not known of Φ there proves nothing.
                    if there.slack <= max(-rise / 2, noise):
                        return there, t < 0.3 * first
                    t *= 0.05
                    continue
                # The least point of the parabola through both values and the slope. Where Φ fell,
                # but by far less than promised, it levels off: the slope held for this part.
                least = wanted / (2 * (rise + wanted)) if rise > 0 else -rise / wanted
                t *= min(0.5, max(1e-3, least))
            # Such a step is lost in the rounding of Φ, or of x.
            lost = -t * slope <= 2 * eps * abs(here.value)
            if lost or t * float(d.abs().max()) <= 4 * eps * float(here.x.abs().max()):
                break
        return None, True

    def price(self, k: int) -> Cost:
        return Cost(None, None, None, None)


@cache
def quasi_newton(**settings: float) -> TriedSteps:
    """`AIDQN` with these settings, by which other methods evaluate Φ."""
    return cast(TriedSteps, named("aid-qn").algorithm(**settings))


def pairs_of(state: State) -> Mapping[str, Tensor]:
    """Differences of x and of ∇Φ; none in a state that another method began."""
    none = state.x.new_zeros(0, len(state.x))
    return {name: state.memory["x"].get(name, none) for name in ("s", "z")}


def _state(
    step: int, at: Evaluation, pairs: Mapping[str, Tensor], sizes: dict[str, float]
) -> State:
    points = {"x": at.x, "y": at.y, "v": at.v, "h": at.h}
    measured = {**sizes, "value": at.value, "slack": at.slack}
    return State(step, points, {"x": dict(pairs), "v": dict(at.memory)}, measured=measured)


def _without_h(state: State) -> State:
    """The same, whose next step evaluates the point again."""
    points = {name: point for name, point in state.points.items() if name != "h"}
    return replace(state, points=points)


def _direction(s: Tensor, z: Tensor, h: Tensor) -> tuple[Tensor, float]:
    """−B h by L-BFGS, and its slope; −h where that is no descent direction."""
    d = -in_metric(s, z, h)
    # Rounding can spoil the two loops; −h goes down in any case.
    slope = float(h @ d)
    return (d, slope) if slope < -1e-10 * norm(h) * norm(d) else (-h, -(norm(h) ** 2))
