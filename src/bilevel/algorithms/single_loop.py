"""The loop of methods in which every point moves once per step, along a direction of its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bilevel.algorithms.contract import Algorithm, Report, State, Write, with_sizes
from bilevel.algorithms.stretched import ahead, by_steps, in_array_code, taken
from bilevel.arguments import Count, Positive, Schedule
from bilevel.kernels.array_code import Draws, Function, Triple
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import TRIPLE, Cost, Price
from bilevel.oracles.stretches import Stretch
from bilevel.oracles.views import View
from bilevel.problem.ahead import Ahead
from bilevel.problem.sampling import Streams
from bilevel.schedules import Values
from bilevel.solvers.updates.base import Look, Memory, Update
from bilevel.solvers.updates.descent import Descent, asked_for
from bilevel.solvers.updates.implicit import ImplicitDescent

_NONE: Mapping[str, Any] = {}  # shared by all that keep nothing: never written to


@dataclass(frozen=True)
class Told(Update):
    """p ← p − lr g, where the step itself finds lr (`Directions.rates`)."""

    def apply(
        self, point: Tensor, gradient: Tensor, memory: Memory, look: Look
    ) -> tuple[Tensor, Memory]:
        return point.sub(gradient, alpha=look.rate), memory


class Directions(NamedTuple):
    """Where the points of a step should go.

    Args:
        by_point: minus this is where a point moves, by its name.
        kept: points that the step itself has set, by name; those in neither stay as they are.
        writes: into the tables of the state.
        rates: the learning rates of points whose update is `Told`, by name.
    """

    by_point: Mapping[str, Tensor]
    kept: Mapping[str, Tensor] = _NONE
    writes: tuple[Write, ...] = ()
    rates: Mapping[str, float] = _NONE


@dataclass(frozen=True, kw_only=True)
class SingleLoop(Algorithm):
    """Every point moves once per step, all from where the last step left them.

    A method says which points there are, how each moves, and along what.

    Args:
        outer_lr: γ, or a schedule k -> γ_k: short for `outer=bilevel.updates.Descent(γ)`.
        outer: how x moves: one of `bilevel.updates`.
        batch: the rows that each quantity is taken on; None is all rows.
    """

    outer_lr: Positive | Schedule | None = None
    outer: Update | None = None
    batch: Count | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.updates(), self.price(0)  # which check the arguments

    @abstractmethod
    def updates(self) -> Mapping[str, Update]:
        """How each point moves, x among them."""

    # `directions` in array code: (oracle, now, tables, draws, numbers, k) -> a named tuple like
    # `now`, of directions, and of points as they are to be kept. See `kernels.array_code`.
    text: ClassVar[Function | None] = None
    points: ClassVar[type[Any]] = Triple

    # What a step asks of the oracle, where that does not depend on arguments or on k.
    asks: ClassVar[Price] = TRIPLE
    # The points besides x and y: v begins at zero, any other where y does.
    others: ClassVar[str] = "v"

    def directions(self, oracle: Oracle, state: State, streams: Streams) -> Directions:
        """The direction of each point: as the text says, unless a method overrides this."""
        assert self.text is not None, f"{type(self).__name__} has neither directions nor a text"
        writes: list[Write] = []
        tables = [_Later(name, table, writes) for name, table in state.tables.items()]
        now = self.points(*(state.points[name] for name in self.points._fields))
        numbers = self.all_numbers(oracle, range(state.step, state.step + 1)).tolist()
        found = self.text(oracle, now, tables, self.draws(streams), numbers, 0)._asdict()
        moved = {name: found.pop(name) for name in self.updates()}
        return Directions(moved, kept=found, writes=tuple(writes))

    def draws(self, streams: Streams | Ahead) -> Draws:
        """The rows of a step, or of all steps ahead."""
        return Draws(*(streams.rows(role, self.batch) for role in ("inner", "outer")))

    def all_numbers(self, oracle: Oracle, ks: range) -> Values:
        """Further numbers that the text needs, one row per step."""
        return np.empty((len(ks), 0))

    @property
    def samples(self) -> bool:
        """Whether the directions depend on chance."""
        return self.batch is not None

    def start(self, oracle: Oracle, x0: Tensor, y0: Tensor) -> dict[str, Tensor]:
        """The points before the first step."""
        begins = {n: torch.zeros_like(y0) if n == "v" else y0.clone() for n in self.others}
        return {"x": x0.clone(), "y": y0.clone(), **begins}

    def tables(self, oracle: Oracle, points: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What is remembered of the rows before the first step."""
        return {}

    def moves_x(self, own: float | Schedule | Update) -> Update:
        """The update of x that was asked for, else the method's own: descent, for a number."""
        asked = asked_for(self.outer, self.outer_lr)
        return asked or (own if isinstance(own, Update) else Descent(own))

    def init(self, oracle: Oracle, x0: Tensor, y0: Tensor) -> State:
        return self._from(oracle, self.start(oracle, x0, y0))

    def begin(self, oracle: Oracle, points: Mapping[str, Tensor]) -> State:
        own = self.start(oracle, points["x"], points["y"])
        return self._from(oracle, {name: points.get(name, point) for name, point in own.items()})

    def sized(self, sizes: Mapping[str, Any]) -> Algorithm | None:
        return with_sizes(self, sizes)

    def _from(self, oracle: Oracle, points: dict[str, Tensor]) -> State:
        memory = {name: update.init(points[name]) for name, update in self.updates().items()}
        return State(0, points, memory, self.tables(oracle, points))

    def step(self, view: View, state: State) -> tuple[State, Report]:
        # No value of f to look at: without an inner solve it would say little of Φ.
        updates, k, whole = self.updates(), state.step, view.whole
        found = self.directions(whole, state, whole.streams(k))
        points, memory = {**state.points, **found.kept}, {}
        # All directions were taken at the old points, so that the order does not matter.
        for name, update in updates.items():
            rate = found.rates.get(name, 1.0)
            look = Look(k, rate=rate, ridge=lambda: whole.ridge(state.x))
            points[name], memory[name] = update.apply(
                state.points[name], found.by_point[name], state.memory[name], look
            )
        direction = found.by_point["x"]
        size = updates["x"].stationarity(state.x, direction)
        # Tables go on as they are: the run writes into them once the step is accepted.
        after = State(k + 1, points, memory, state.tables, state.measured)
        return after, Report(direction, size, writes=found.writes, noisy=self.samples)

    @property
    def stretches(self) -> bool:
        updates = self.updates()
        others = {type(update) for name, update in updates.items() if name != "x"}
        simple = len(others) == 1 and others <= {Descent, ImplicitDescent}
        # What a subclass has changed, its parent's text does not know.
        return simple and in_array_code(updates["x"]) and "text" in vars(type(self))

    def stretch(self, oracle: Oracle, state: State, steps: int) -> tuple[State, Report, Tensor]:
        updates, names = self.updates(), self.points._fields
        ks = range(state.step, state.step + steps)
        x, points = updates["x"], self.points(*(state.points[name] for name in names))
        rates = {n: update.rates(state.memory[n], ks) for n, update in updates.items()}
        draws, dtype = self.draws(ahead(oracle, state, steps)), points[0].numpy().dtype
        plan = Stretch(
            text=type(self).text,
            move=type(x).moves,
            points=points,
            memory=state.memory["x"],
            tables=state.tables,
            draws=draws,
            rates=np.stack([rates.get(n, np.ones(steps)) for n in names], axis=1).astype(dtype),
            numbers=self.all_numbers(oracle, ks).astype(dtype),
            constants=np.array(x.constants()),
            kept=np.array([name not in updates for name in names]),
            implicit=type(updates["y"]) is ImplicitDescent,
            prices=[(self.asks.of_f, draws.outer), (self.asks.of_g, draws.inner)],
            by_steps=lambda oracle: by_steps(self, oracle, state, steps),
        )
        return taken(plan, oracle, state, x, noisy=self.batch is not None)

    def price(self, k: int) -> Cost:
        return Cost(*self.asks)

    def stationarity(self, x: Tensor, direction: Tensor, k: int) -> float:
        return self.updates()["x"].stationarity(x, direction)


class _Later:
    """A table to read from. What is written to it is left to the run, once the step is accepted."""

    def __init__(self, name: str, table: Tensor, writes: list[Write]) -> None:
        self._name, self._table, self._writes = name, table, writes

    def __getitem__(self, row: int) -> Tensor:
        return self._table[row]

    def __setitem__(self, row: int, values: Tensor) -> None:
        self._writes.append(Write(self._name, torch.tensor([row]), values[None]))
