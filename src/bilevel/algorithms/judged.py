"""The loop of methods whose sizes are measured: their own steps, in chapters that Φ judges.

Any method of the other two frames runs like this if it is given no number, as `X()`:

- At the start of a chapter Φ, ∇Φ, y and v are known accurately, on all rows (`evaluate`).
- From there the method takes its own steps, as in its paper, on batches, in units of y in which
  the inner curvature is one (`InUnits`), and with x in the metric of L-BFGS (`QuasiNewton`). In
  these units its sizes need no guessing: they are passed to its fields by name (`sizes`).
- The way that x went in a chapter is then tried as one step: Φ is evaluated at its end, and the
  step is taken, or shortened until Φ has fallen. x stays where Φ was lowest.
- A way that does not descend along ∇Φ is noise, or too rough. Then x takes the step of L-BFGS
  from the known ∇Φ (`state.measured["lost"]` counts these), and batches grow; on all rows the
  next chapter has more steps, and then more terms. Where ways descend again, it has fewer.

A method takes measured sizes in fields of these names, as far as it has them:
`inner_lr`, `neumann_lr`, `fixed_point_lr` (a part of 1/L), `inner_steps`, `neumann_terms` (as many
as leave a fifth), `batch`, `multiplier` (λ of value functions), `nu` (1/λ), `mixed_lr`, `share`,
`start_lr` (a fifth of 1/L of f: how far f may lead y away from the inner solution) and `outer`,
how x moves. Others keep their defaults. A method that needs more overrides `sized`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bilevel.algorithms.contract import Algorithm, State
from bilevel.algorithms.tried_steps import Course, Evaluation, TriedSteps, pairs_of, quasi_newton
from bilevel.arguments import Positive
from bilevel.hypergradients.base import Stand
from bilevel.numerics.vectors import norm
from bilevel.oracles.points import Oracle
from bilevel.oracles.units import InUnits
from bilevel.oracles.views import View
from bilevel.problem.sampling import Streams
from bilevel.solvers import units as measured
from bilevel.solvers.updates.quasi_newton import QuasiNewton

_LEAST, _BLOCKS = 256, 64  # rows of the first batches, or the 64th part of all
_GROWTH = 4  # of the batches
_MANY = 0.5  # of the rows: a batch of more than this share is all of them
_CALLS, _STEPS = 12, 16  # a chapter has at least this many calls, and at most this many steps
_WORTH = 8.0  # passes over the rows that it costs, within these bounds
_WAY = 1.6  # the sum of the rates of its steps: more than 1, as y and v lag behind x
_LOOKS = 2  # times that the curvature is measured on the way
_FAR = 4.0  # times the model's way: more, and the steps have run away
_SIGNAL = 0.1  # the part of the model's slope that a way must have
_LEFT, _LEAST_LEFT = 0.2, 1e-4  # what inner steps and series leave of their error
_DROP = 0.3  # of its error that a solve for Φ leaves, until Φ is known well enough
_TERMS = 64  # the most inner steps and terms
_CHANCE = 4  # times fewer, where one random term stands for all: they are its noise
_PRICE = 12  # the most calls of a step, by fewer steps and terms: a trial costs about ten
_ROOM = 1024  # numbers of steps that a chapter may use for its random rows
_MORE = 4.0  # times as many steps, where noise is not from the rows, or y and v have lagged behind
_OUTER = ("mixed_lr", "share", "start_lr")  # of f
_COUNTS = ("inner_steps", "neumann_terms")
_RATES = ("inner_lr", "neumann_lr", "fixed_point_lr")


@dataclass(frozen=True, kw_only=True)
class Judged(TriedSteps):
    """A method's own steps with measured sizes, taken as far as Φ falls.

    Args:
        method: any method of the frames `DoubleLoop` and `SingleLoop`.
        first: the largest entry of the first step, in units of max(1, max |x0|); later steps grow.
    """

    method: Algorithm
    first: Positive = 0.1

    def here(self, oracle: Oracle, state: State, streams: Streams) -> Evaluation:
        if "h" not in state.points:
            learned = measured.learned(oracle, state.x, state.y, state.memory.get("v", {}), streams)
            return super().here(
                oracle, replace(state, memory={**state.memory, "v": learned}), streams
            )
        here = super().here(oracle, state, streams)
        return replace(here, memory=measured.learned(oracle, here.x, here.y, here.memory, streams))

    def evaluate(
        self, oracle: Oracle, stand: Stand, wanted: float | None, streams: Streams
    ) -> Evaluation:
        return quasi_newton(drop=_DROP).evaluate(oracle, stand, wanted, streams)

    def course(
        self, oracle: Oracle, here: Evaluation, state: State, model: Course, sizes: dict[str, float]
    ) -> Course:
        batch = _batch(oracle, sizes)
        units = InUnits(oracle, here.y, here.memory.get("factor"), _ROOM * (state.step + 1))
        chapter = _Chapter(
            self.method, units, here, batch, sizes.get("left", _LEFT), int(sizes.get("more", 1))
        )
        way, by_chance = chapter.way(model, pairs_of(state))
        slope, wanted = float(here.h @ way), model.t * model.slope
        if slope <= _SIGNAL * wanted:
            _relaxed(sizes)
            # A way that is short, without noise, leads on as far as the model would go.
            noisy = batch is not None or by_chance
            return Course(way, slope, 1.0 if noisy else max(1.0, wanted / slope), model.share)
        if not _grown(oracle, sizes):  # nor is it noise, but the method's estimate too rough
            sizes["left"] = max(sizes.get("left", _LEFT) / 10, _LEAST_LEFT)
        sizes["lost"] = sizes.get("lost", 0.0) + 1
        return model

    def tried(
        self,
        oracle: Oracle,
        here: Evaluation,
        course: Course,
        streams: Streams,
        sizes: dict[str, float],
    ) -> tuple[Evaluation | None, bool]:
        there, cut = super().tried(oracle, here, course, streams, sizes)
        if cut:  # most of the way may have been noise
            _batch_grown(oracle, sizes)
        return there, cut


@dataclass(frozen=True)
class _Chapter:
    """A method's own steps from a point that is known accurately.

    Args:
        method: as it was given, without numbers.
        units: the problem as the method sees it, with y = here.y at zero.
        here: where the chapter begins.
        batch: the rows of its batches; None is all rows.
        left: the fraction of their error that inner steps and series may leave.
        more: the number of steps, in multiples of the usual one.
    """

    method: Algorithm
    units: InUnits
    here: Evaluation
    batch: int | None
    left: float
    more: int

    def way(self, model: Course, pairs: Mapping[str, Tensor]) -> tuple[Tensor, bool]:
        """The way that x went, and whether it depends on chance."""
        units, zero = self.units, torch.zeros_like(self.here.y)
        rate = measured.rate(units, self.here.x, zero, self.batch, 0)
        method = self._sized(rate)
        steps, by_chance = self.more * _steps(method, self.batch, units), False
        outer = QuasiNewton(_WAY * model.t / steps, pairs)
        method = method.sized({"outer": outer}) or method
        points = {"x": self.here.x, "y": zero, "v": units.solved(self.here.v), "h": self.here.h}
        at, ways = method.begin(units, points), [torch.zeros_like(self.here.x)]
        for k in range(steps):
            if k and k % max(1, steps // _LOOKS) == 0:
                now = measured.rate(units, at.x, at.y, self.batch, k)
                if not now >= rate / measured.STALE:  # x is now where other units are needed
                    return ways[-1], by_chance
                method = method.sized(dict.fromkeys(_RATES, min(now, rate))) or method
            at, report = method.step(View.of(units, k), at)
            by_chance = report.noisy
            ways.append(at.x - self.here.x)
            if not (at.is_finite() and norm(ways[-1]) <= _FAR * model.t * norm(model.d)):
                # What grows like this was still harmless after half as many steps.
                return ways[len(ways) // 2], by_chance
            for write in report.writes:  # into the chapter's own tables
                at.tables[write.table][write.rows] = write.values
        return ways[-1], by_chance

    def _sized(self, rate: float) -> Algorithm:
        """The method with what was measured."""
        # In these units the least curvature is about one: (1 − rate)^n is what n steps leave.
        terms = min(_TERMS, math.ceil(math.log(1 / self.left) / rate))
        # The two solutions of a value function are v/λ apart: a small part of y itself.
        size = norm(self.units.solved(self.here.y)) or 1.0
        apart = self.left / 10 * size
        multiplier = norm(self.units.solved(self.here.v)) / apart or 1.0
        found = {
            **dict.fromkeys(_RATES, rate),
            **dict.fromkeys(_COUNTS, terms),
            "batch": self.batch,
            "multiplier": multiplier,
            "nu": 1 / multiplier,
        }
        method = self.method.sized(found) or self.method
        if method.price(1).hv is None:
            terms = math.ceil(terms / _CHANCE)
            method = method.sized({"neumann_terms": terms}) or method
        while terms > 1 and _calls(method) > _PRICE:
            terms //= 2
            method = method.sized(dict.fromkeys(_COUNTS, terms)) or method
        if any(hasattr(method, name) for name in _OUTER):
            zero = torch.zeros_like(self.here.y)
            outer = self.left * measured.outer_rate(self.units, self.here.x, zero, size)
            method = method.sized(dict.fromkeys(_OUTER, outer)) or method
        return method


def _batch(oracle: Oracle, sizes: Mapping[str, float]) -> int | None:
    """The rows of a batch; None is all of them."""
    counts = [rows for rows in (oracle.inner_rows, oracle.outer_rows) if rows]
    if not counts:
        return None
    size = int(sizes.get("batch", max(_LEAST, max(counts) // _BLOCKS)))
    return size if size <= _MANY * min(counts) else None


def _grown(oracle: Oracle, sizes: dict[str, float]) -> bool:
    """Let batches grow, or on all rows the chapters; False if neither can."""
    if _batch_grown(oracle, sizes):
        return True
    more = sizes.get("more", 1.0)
    sizes["more"] = min(_GROWTH * more, _MORE)
    return more < _MORE


def _relaxed(sizes: dict[str, float]) -> None:
    """What one place has asked for, the next may not: such chapters cost more."""
    sizes["more"] = max(sizes.get("more", 1.0) / 2, 1.0)
    sizes["left"] = min(3 * sizes.get("left", _LEFT), _LEFT)


def _batch_grown(oracle: Oracle, sizes: dict[str, float]) -> bool:
    batch = _batch(oracle, sizes)
    if batch is not None:
        sizes["batch"] = float(_GROWTH * batch)
    return batch is not None


def _steps(method: Algorithm, batch: int | None, oracle: Oracle) -> int:
    """As many steps as cost a few passes over the rows."""
    total = _calls(method)
    share = 1.0 if batch is None else batch / max(oracle.inner_rows or 0, oracle.outer_rows or 0)
    # Enough for y and v to follow x, where all of them move once per step.
    fewest = max(2, math.ceil(_CALLS / total))
    return int(min(_STEPS, max(fewest, _WORTH / (total * share))))


def _calls(method: Algorithm) -> float:
    """What a step costs."""
    cost = method.price(1)
    # Where chance or a tolerance decides, ten calls stand for what is not known.
    calls = [10 if c is None else c for c in (cost.gc_g, cost.jv, cost.hv)]
    return sum(calls) + (2 if cost.gc_f is None else cost.gc_f) / 2
