"""The loop of the paper's Algorithms 1 and 2: inner solve, hypergradient, outer step."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar

from torch import Tensor

from bilevel.algorithms.contract import Algorithm, Report, Solve, State, with_sizes
from bilevel.algorithms.implicit_steps import InnerSteps, are_plain, stretch
from bilevel.algorithms.parts import Parts as Parts
from bilevel.arguments import Flag, Positive, Schedule
from bilevel.hypergradients.base import Estimate, Stand
from bilevel.hypergradients.parts import estimate_in_parts
from bilevel.numerics.large_pages import copy_of
from bilevel.numerics.vectors import norm
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import Cost
from bilevel.oracles.views import View
from bilevel.solvers.measured import Measured
from bilevel.solvers.updates.base import Look, Update
from bilevel.solvers.updates.descent import asked_for
from bilevel.solvers.updates.measured import MeasuredDescent


@dataclass(frozen=True, kw_only=True)
class DoubleLoop(Algorithm):
    """x_{k+1} = x_k − β ∇̂Φ(x_k), where y follows by an inner solver and ∇̂Φ by AID or ITD.

    A method says which parts make up outer step k; the loop below is the same for all
    (the paper, Algorithm 1, lines 3 to 8).

    Args:
        outer_lr: β, or a schedule k -> β_k: short for `outer=bilevel.updates.Descent(β)`.
        outer: how x moves: one of `bilevel.updates`. With neither, the method finds its own steps.
        warm_start: start y, and v where the method says so, from the last outer step's.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> class Mine(bilevel.algorithms.DoubleLoop):
        ...     def parts(self, k):
        ...         newton, dense = bilevel.inner.NewtonCG(1e-8), bilevel.linear.Dense()
        ...         return bilevel.algorithms.Parts(newton, bilevel.AID(dense), self.moves_x())
        >>> bilevel.minimize(halves(), Mine(outer_lr=0.1), steps=50).x
        tensor([0.5000, 0.5000])
    """

    outer_lr: Positive | Schedule | None = None
    outer: Update | None = None
    warm_start: Flag = True

    # Whether `parts` depends on k by schedules alone: then, without any, it is asked only once.
    steady: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at(0)  # which checks every argument

    @abstractmethod
    def parts(self, k: int) -> Parts:
        """What outer step k is made of."""

    def at(self, k: int) -> Parts:
        """The parts of step k: made once, where no schedule or rule changes them."""
        return self.parts(k) if self._steady is None else self._steady

    @cached_property
    def _steady(self) -> Parts | None:
        values = (getattr(self, field.name) for field in fields(self))
        # Any field that can be called may be a schedule. Where one is not (a preconditioner), the
        # parts are only made more often than needed.
        return self.parts(0) if self.steady and not any(map(callable, values)) else None

    def moves_x(self, own: Update | None = None) -> Update:
        """The update that was asked for, else the method's own, else one that measures."""
        return asked_for(self.outer, self.outer_lr) or own or MeasuredDescent()

    def init(self, oracle: Oracle, x0: Tensor, y0: Tensor) -> State:
        points = {"x": copy_of(x0), "y": copy_of(y0)}
        if not self.warm_start:
            points["y0"] = points["y"]  # one for both: no step writes into a state
        return State(0, points, {"x": self.at(0).outer.init(x0)})

    def sized(self, sizes: Mapping[str, Any]) -> Algorithm | None:
        return with_sizes(self, sizes)

    def step(self, view: View, state: State) -> tuple[State, Report]:
        k, x, parts = state.step, state.x, self.at(state.step)
        # Line 3: y_k^0 = y_{k−1}^D. Line 7, AID, 1): v_k^0 = v_{k−1}^N.
        y = state.y if self.warm_start else state.points["y0"]
        v = state.points.get("v") if self.warm_start and parts.warm_v else None
        y = parts.start.point(view.whole, x, y)
        stand = Stand(x, y, v, state.memory.get("y", {}), state.measured)
        # Lines 4 to 7: the inner steps, and the estimate of ∇Φ(x_k) at y_k^D.
        found = estimate_in_parts(parts.hypergradient, view.parts, stand, parts.inner, k)
        # Line 8: x_{k+1} = x_k − β ∇̂Φ(x_k), or whatever update was asked for.
        moved, memory = parts.outer.apply(x, found.value, state.memory["x"], _look(view, x, found))
        # `y0` of a cold start stays; x, y and v are replaced.
        points = {**state.points, "x": moved, "y": found.inner.y, "v": found.linear.v}
        memories = {"x": memory, **({"y": found.inner.memory} if found.inner.memory else {})}
        # At the x before the step, where the estimate was made.
        size = parts.outer.stationarity(x, found.value)
        after = State(k + 1, points, memories, measured={**state.measured, **found.measured})
        return after, Report(found.value, size, _solves(found), noisy=parts.noisy)

    def inner_steps_of(self, ks: range) -> InnerSteps | None:
        """The inner steps of these outer ones, of a method that is made for `implicit_steps`."""
        return None

    @property
    def stretches(self) -> bool:
        own = "inner_steps_of" in vars(type(self)) and type(self).step is DoubleLoop.step
        if not own or not self.warm_start:
            return False
        values = (getattr(self, entry.name) for entry in fields(self))
        # What is measured is not known beforehand.
        return not any(isinstance(value, Measured) for value in values) and are_plain(self.at(0))

    def stretch(self, oracle: Oracle, state: State, steps: int) -> tuple[State, Report, Tensor]:
        inner = self.inner_steps_of(range(state.step, state.step + steps))
        assert inner is not None
        return stretch(self, self.at(state.step), oracle, state, inner)

    def price(self, k: int) -> Cost:
        parts = self.at(k)
        # The first outer step has no v to start from.
        return parts.hypergradient.price(parts.inner, self.warm_start and parts.warm_v and k > 0)

    def stationarity(self, x: Tensor, direction: Tensor, k: int) -> float:
        return self.at(k).outer.stationarity(x, direction)

    def adapt(self, oracle: Oracle, x: Tensor, y: Tensor, k: int) -> Tensor:
        parts = self.at(k)
        y = parts.start.point(oracle, x, y)
        # New tasks belong to no outer step: they draw as step 0 does.
        return parts.inner.solve(oracle, x, y, oracle.streams(0)).y


def _look(view: View, x: Tensor, found: Estimate) -> Look:
    # Functions, not numbers: most updates never ask, and a pass over all rows is not free.
    def value() -> float:
        return float(view.whole.outer(x, found.inner.y).value())

    def doubt(gradient: float) -> float:
        """f(x, y) is off from Φ(x) by ⟨v, ∇y g⟩ to first order."""
        known = found.inner.gradient_norm
        return norm(found.linear.v) * (gradient if known is None else known)

    return Look(view.step, value, doubt)


def _solves(found: Estimate) -> tuple[Solve, ...]:
    inner, linear = found.inner, found.linear
    return (
        Solve("inner", str(inner.status), inner.steps, inner.gradient_norm),
        Solve("linear", str(linear.status), linear.steps, linear.residual),
    )
