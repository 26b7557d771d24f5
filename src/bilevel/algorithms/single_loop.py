"""The loop of methods in which every point moves once per step, along a direction of its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from bilevel.algorithms.contract import Algorithm, Report, State, Write
from bilevel.arguments import Schedule, positive_integer
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import Cost, Price
from bilevel.oracles.views import View
from bilevel.problem.sampling import Streams
from bilevel.solvers.updates.base import Look, Update
from bilevel.solvers.updates.descent import Descent, asked_for

_NONE: Mapping[str, Tensor] = {}  # shared by all that keep nothing: never written to


class Directions(NamedTuple):
    """Where the points of a step want to go.

    Args:
        by_point: minus this is where a point moves, by its name.
        kept: points that do not move but are remembered as they are, by name.
        writes: into the tables of the state.
    """

    by_point: Mapping[str, Tensor]
    kept: Mapping[str, Tensor] = _NONE
    writes: tuple[Write, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SingleLoop(Algorithm):
    """Every point moves once per step, all from where the last step left them.

    A method says which points there are, how each moves, and along what.

    Args:
        outer_lr: γ, or a schedule k -> γ_k: short for `outer=bilevel.updates.Descent(γ)`.
        outer: how x moves: one of `bilevel.updates`.
        batch: the rows that each quantity is taken on; None is all rows.
    """

    outer_lr: float | Schedule | None = None
    outer: Update | None = None
    batch: int | None = None

    def __post_init__(self) -> None:
        self.updates(), self.asks  # which check the arguments
        if self.batch is not None:
            positive_integer("batch", self.batch)

    @abstractmethod
    def updates(self) -> Mapping[str, Update]:
        """How each point moves, x among them."""

    @abstractmethod
    def directions(self, oracle: Oracle, state: State, streams: Streams) -> Directions:
        """Along what each point moves."""

    @property
    @abstractmethod
    def asks(self) -> Price:
        """What a step asks of the oracle."""

    def start(self, oracle: Oracle, x0: Tensor, y0: Tensor) -> dict[str, Tensor]:
        """The points before the first step: by default x, y and v = 0."""
        return {"x": x0.clone(), "y": y0.clone(), "v": torch.zeros_like(y0)}

    def tables(self, oracle: Oracle, points: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What is remembered of the rows before the first step."""
        return {}

    def moves_x(self, lr: float | Schedule) -> Update:
        """The update of x that was asked for, else descent with this learning rate."""
        return asked_for(self.outer, self.outer_lr) or Descent(lr)

    def init(self, oracle: Oracle, x0: Tensor, y0: Tensor) -> State:
        points = self.start(oracle, x0, y0)
        memory = {name: update.init(points[name]) for name, update in self.updates().items()}
        return State(0, points, memory, self.tables(oracle, points))

    def step(self, view: View, state: State) -> tuple[State, Report]:
        # No value of f to look at: without an inner solve it would say little of Φ.
        updates, look = self.updates(), Look(state.step)
        found = self.directions(view.whole, state, view.whole.streams(state.step))
        points, memory = dict(found.kept), {}
        # All directions were taken at the old points, so that the order does not matter.
        for name, update in updates.items():
            points[name], memory[name] = update.apply(
                state.points[name], found.by_point[name], state.memory[name], look
            )
        direction = found.by_point["x"]
        size = updates["x"].stationarity(state.x, direction)
        # Tables go on as they are: the run writes into them once the step is accepted.
        after = State(state.step + 1, points, memory, state.tables, state.measured)
        noisy = self.batch is not None
        return after, Report(direction, size, writes=found.writes, noisy=noisy)

    def price(self, k: int) -> Cost:
        return Cost(*self.asks)

    def stationarity(self, x: Tensor, direction: Tensor, k: int) -> float:
        return self.updates()["x"].stationarity(x, direction)
