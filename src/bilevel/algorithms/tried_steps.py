"""The loop of methods whose steps are tried: re-solved at the new x, and taken only if Φ fell."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bilevel.algorithms.contract import Algorithm, Report, Solve, State
from bilevel.hypergradients.base import Stand
from bilevel.numerics.vectors import norm
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import Cost
from bilevel.oracles.views import View
from bilevel.problem.sampling import Streams

_ARMIJO = 1e-4  # the fraction of the decrease promised by the slope that must be achieved
_SLACK = 0.1  # the fraction of the wanted decrease by which Φ may be wrong
_FIRST = 1e-3  # the largest entry of the first step, in units of max(1, |x0|)
_GROW = 10.0  # a step is at most this many times the longest one since the last cut
_MEMORY = 20  # pairs of differences
_CUTS = 60  # trials of one step, each at most half as long as the one before
_TIGHTEST = 1e-6  # however many steps fail, solves are not asked for more than this factor


@dataclass(frozen=True)
class Evaluation:
    """Φ and ∇Φ at an x, with what they rest on.

    Args:
        x, y, v: the point, the inner solution there, and that of the linear system.
        h: ∇Φ(x).
        value: Φ(x) ≈ f(x, y) − ⟨v, ∇y g(x, y)⟩, wrong in second order only.
        slack: |⟨v, ∇y g(x, y)⟩|, how far f(x, y) is from that.
        solves: how they went.
    """

    x: Tensor
    y: Tensor
    v: Tensor
    h: Tensor
    value: float
    slack: float
    solves: tuple[Solve, ...] = ()

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.value) and math.isfinite(norm(self.h))


@dataclass(frozen=True, kw_only=True)
class TriedSteps(Algorithm):
    """Quasi-Newton steps on Φ. x only moves to points where Φ was found lower.

    A method says how Φ and ∇Φ are evaluated at an x, from the y and v of the last accepted point;
    the loop below chooses the direction (L-BFGS), tries a length, and cuts it until Φ has
    verifiably fallen. There is nothing to choose: no learning rate, and no scale.

    Reference: L-BFGS, Liu & Nocedal, 1989; Armijo's condition, Nocedal & Wright, "Numerical
    optimization", Section 3.1.
    """

    @abstractmethod
    def evaluate(
        self, oracle: Oracle, stand: Stand, wanted: float | None, streams: Streams
    ) -> Evaluation:
        """Φ and ∇Φ at stand.x, with a slack of at most a tenth of the wanted decrease.

        None wants ∇Φ itself to be accurate. `stand.measured["tighter"]` is a factor on the solves'
        tolerances, below 1 once they have proved too inaccurate to go on with.
        """

    def init(self, oracle: Oracle, x0: Tensor, y0: Tensor) -> State:
        none = x0.new_zeros(0, len(x0))
        return State(0, {"x": x0.clone(), "y": y0.clone()}, {"x": {"s": none, "z": none}})

    def step(self, view: View, state: State) -> tuple[State, Report]:
        oracle, streams = view.whole, view.whole.streams(state.step)
        here = self._here(oracle, state, streams)
        pairs, sizes = state.memory["x"], dict(state.measured)
        d, slope = _direction(pairs["s"], pairs["z"], here.h)
        # At a stationary point d is zero, and nothing may be divided by it.
        largest = float(d.abs().max()) or 1.0
        if len(pairs["s"]):
            # The first length was a guess: the second may be far longer.
            grow = _GROW if len(pairs["s"]) > 1 else 100 * _GROW
            t = min(1.0, grow * sizes.get("longest", largest) / largest)
        else:
            t = sizes.get("fresh", _FIRST * max(1.0, float(here.x.abs().max()))) / largest
        there, cut = self._try(oracle, here, d, slope, t, streams, sizes)
        if there is None:
            # The model of Φ may be at fault, or the accuracy: start over, shorter and tighter.
            sizes["fresh"] = t * largest * 1e-2
            sizes["tighter"] = max(sizes.get("tighter", 1.0) * 1e-2, _TIGHTEST)
            stuck = Solve("outer", "stalled", _CUTS, norm(here.h))
            after = _state(state.step + 1, here, pairs["s"][:0], pairs["z"][:0], sizes)
            # Without "h" the next step evaluates this point again, with tighter solves.
            again = {name: point for name, point in after.points.items() if name != "h"}
            report = Report(here.h, norm(here.h), (*here.solves, stuck))
            return replace(after, points=again), report
        s, z = there.x - here.x, there.h - here.h
        length = float(s.abs().max())
        # A pair without positive curvature would cost L-BFGS its positive definite matrix.
        if float(s @ z) > 1e-8 * norm(s) * norm(z):
            pairs = {"s": torch.cat([pairs["s"], s[None]]), "z": torch.cat([pairs["z"], z[None]])}
        else:  # no curvature to learn from: go on further
            sizes["fresh"] = _GROW * length
        sizes["longest"] = length if cut else max(length, sizes.get("longest", 0.0))
        last_s, last_z = pairs["s"][-_MEMORY:], pairs["z"][-_MEMORY:]
        after = _state(state.step + 1, there, last_s, last_z, sizes)
        return after, Report(here.h, norm(here.h), there.solves)

    def _here(self, oracle: Oracle, state: State, streams: Streams) -> Evaluation:
        """What is known of the point where we stand, which only the start has to find out."""
        points = state.points
        if "h" not in points:
            stand = Stand(state.x, state.y, points.get("v"), measured=state.measured)
            return self.evaluate(oracle, stand, None, streams)
        value, slack = state.measured["value"], state.measured["slack"]
        return Evaluation(state.x, state.y, points["v"], points["h"], value, slack)

    def _try(
        self,
        oracle: Oracle,
        here: Evaluation,
        d: Tensor,
        slope: float,
        t: float,
        streams: Streams,
        sizes: dict[str, float],
    ) -> tuple[Evaluation | None, bool]:
        """A lower point along d, and whether the step had to be cut for it."""
        eps = float(torch.finfo(here.x.dtype).eps)
        first = t
        for _ in range(_CUTS):
            wanted = -t * slope
            stand = Stand(here.x.add(d, alpha=t), here.y, here.v, measured=sizes)
            there = self.evaluate(oracle, stand, wanted, streams)
            # A rise of this much may be rounding, or an error of the value that we compare with.
            noise = 20 * eps * abs(here.value) + _SLACK * min(here.slack, wanted)
            if not there.is_finite or there.slack > max(wanted / 2, noise):
                t *= 0.05  # Φ is not known there
                continue
            rise = there.value - here.value
            if rise <= _ARMIJO * t * slope + noise:
                return there, t < 0.3 * first
            # The least point of the parabola through both values and the slope.
            t *= min(0.5, max(1e-3, wanted / (2 * (rise + wanted)))) if rise + wanted > 0 else 0.5
            # Such a step is lost in the rounding of x.
            if t * float(d.abs().max()) <= 4 * eps * float(here.x.abs().max()):
                break
        return None, True

    def price(self, k: int) -> Cost:
        return Cost(None, None, None, None)


def _state(step: int, at: Evaluation, s: Tensor, z: Tensor, sizes: dict[str, float]) -> State:
    points = {"x": at.x, "y": at.y, "v": at.v, "h": at.h}
    measured = {**sizes, "value": at.value, "slack": at.slack}
    return State(step, points, {"x": {"s": s, "z": z}}, measured=measured)


def _direction(s: Tensor, z: Tensor, h: Tensor) -> tuple[Tensor, float]:
    """−B h by the two loops of L-BFGS, and its slope; −h where that is no descent direction."""
    d, alphas = -h, []
    for i in reversed(range(len(s))):
        alpha = float(s[i] @ d) / float(s[i] @ z[i])
        alphas.append(alpha)
        d = d - alpha * z[i]
    if len(s):
        # The newest pair sets the scale: s'z/z'z, an inverse curvature (Liu & Nocedal).
        d = d * (float(s[-1] @ z[-1]) / float(z[-1] @ z[-1]))
    for i, alpha in zip(range(len(s)), reversed(alphas), strict=True):
        d = d + (alpha - float(z[i] @ d) / float(s[i] @ z[i])) * s[i]
    # Rounding can spoil the two loops; −h goes down in any case.
    slope = float(h @ d)
    return (d, slope) if slope < -1e-10 * norm(h) * norm(d) else (-h, -(norm(h) ** 2))
