"""What an algorithm is: state in; state and report out."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from bilevel.arguments import Checked
from bilevel.errors import UserError
from bilevel.numerics.vectors import norm
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import Cost
from bilevel.oracles.views import View


@dataclass(frozen=True)
class State:
    """Where a run stands. Plain data: `torch.load(..., weights_only=True)` reads it back.

    A step returns a new State and writes nothing into the old one. Random numbers need no
    place here: they depend on the oracle's seed and on `step` alone.

    Args:
        step: k, how many outer steps were taken.
        points: flat vectors by name: x, y, and whatever else moves, such as v or z.
        memory: of each point's update, by the point's name.
        tables: one row per sample (or block of samples), for variance reduction. States share them:
            the run writes their rows once a step is accepted.
        measured: numbers that the method has measured, by name.
        buffers: of modules among the variables, such as the statistics of batch normalisation; the
            run keeps them, no method sees them.

    Example:
        >>> import io, torch, bilevel
        >>> from bilevel.problem.examples import halves
        >>> torch.save(bilevel.minimize(halves(), steps=2).state, file := io.BytesIO())
        >>> state = torch.load(io.BytesIO(file.getvalue()), weights_only=True)
        >>> bilevel.minimize(halves(), steps=20, state=state).x
        tensor([0.5000, 0.5000])
    """

    step: int
    points: Mapping[str, Tensor]
    memory: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    tables: Mapping[str, Tensor] = field(default_factory=dict)
    measured: Mapping[str, float] = field(default_factory=dict)
    buffers: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def x(self) -> Tensor:
        """The outer variable, flat."""
        return self.points["x"]

    @property
    def y(self) -> Tensor:
        """The inner variable, flat."""
        return self.points["y"]

    def is_finite(self) -> bool:
        """Whether every point is."""
        return all(map(_is_finite, self.points.values()))

    def copy(self) -> State:
        """The same with points, memory and tables of its own."""
        # Everything: a callback that works on its copy in place must not move the run.
        return copy.deepcopy(self)

    def with_own_tables(self) -> State:
        """The same with tables of its own, which may be written to."""
        return replace(self, tables={name: table.clone() for name, table in self.tables.items()})

    def plain(self) -> dict[str, Any]:
        """The same as dicts, numbers and tensors."""
        return {
            "step": self.step,
            "points": dict(self.points),
            "memory": {name: dict(memory) for name, memory in self.memory.items()},
            "tables": dict(self.tables),
            "measured": dict(self.measured),
            "buffers": dict(self.buffers),
        }


@dataclass(frozen=True)
class Solve:
    """How a solve inside a step went.

    Args:
        what: "inner", "linear", or what else was solved.
        status: how it ended.
        steps: how many were taken.
        residual: what is left of its gradient or residual, where that is known for free.
    """

    what: str
    status: str
    steps: int
    residual: float | None = None


@dataclass(frozen=True)
class Write:
    """Rows of a table, to be written by the run once the step is accepted."""

    table: str
    rows: Tensor
    values: Tensor


@dataclass(frozen=True)
class Report:
    """What a step reports.

    Args:
        direction: the estimate of ∇Φ(x) that x moved along, at the x before the step.
        norm: of it, or its projected form where x is constrained: zero at a stationary point.
        solves: how the solves inside went; a single loop has none.
        writes: into the tables of the state.
        noisy: whether the estimate rests on batches.
        stuck: whether the method can do no more: further steps would not move x.
    """

    direction: Tensor
    norm: float
    solves: tuple[Solve, ...] = ()
    writes: tuple[Write, ...] = ()
    noisy: bool = False
    stuck: bool = False


class Algorithm(Checked, ABC):
    """A way to minimise Φ. Frozen data: what changes from step to step is in the State.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> views = bilevel.oracles.Views(problem := halves())
        >>> algorithm = bilevel.algorithms.HOAG(tolerance=0.1)
        >>> state = algorithm.init(views.oracle, problem.x0, problem.y0)
        >>> for k in range(60):  # what `minimize` does, without its care
        ...     state, report = algorithm.step(views.at(k), state)
        >>> state.x
        tensor([0.5000, 0.5000])
    """

    # Whether x only moves to where Φ was found lower: then a steep place is no divergence.
    descends: ClassVar[bool] = False

    @abstractmethod
    def init(self, oracle: Oracle, x0: Tensor, y0: Tensor) -> State:
        """The state before the first step, from flat x0 and y0."""

    @abstractmethod
    def step(self, view: View, state: State) -> tuple[State, Report]:
        """One outer step."""

    @property
    def stretches(self) -> bool:
        """Whether it is written in array code, so that `stretch` takes many steps at once."""
        return False

    def stretch(self, oracle: Oracle, state: State, steps: int) -> tuple[State, Report, Tensor]:
        """Some outer steps, compiled where the model allows it: the same answer up to rounding.

        The report is that of the last step, and belongs to the x that comes with it. The state
        that was given is left as it is, tables too.
        """
        raise NotImplementedError(f"{type(self).__name__} takes one step at a time")

    @abstractmethod
    def price(self, k: int) -> Cost:
        """What outer step k costs in calls; None where chance or a tolerance decides."""

    def sized(self, sizes: Mapping[str, Any]) -> Algorithm | None:
        """The same method with sizes that were measured, by the names of its fields.

        None where it finds its own. See `bilevel.algorithms.judged`.
        """
        return None

    def begin(self, oracle: Oracle, points: Mapping[str, Tensor]) -> State:
        """The state before a step from these points: x and y, and v and h where it has them."""
        state = self.init(oracle, points["x"], points["y"])
        return replace(state, points={**state.points, "v": points["v"]})

    def stationarity(self, x: Tensor, direction: Tensor, k: int) -> float:
        """How far x is from stationary, given ∇Φ(x): its norm, where nothing binds x."""
        return norm(direction)

    def adapt(self, oracle: Oracle, x: Tensor, y: Tensor, k: int) -> Tensor:
        """y for new tasks at a fixed x, as outer step k would find it."""
        raise UserError(
            f"{type(self).__name__} has no inner solver that could adapt to new tasks: use a "
            "double loop, such as AIDBiO or ITDBiO"
        )


def with_sizes(method: Algorithm, sizes: Mapping[str, Any]) -> Algorithm:
    """A copy of a method whose fields of these names have these values."""
    own = {entry.name for entry in fields(cast(Any, method))}
    known = {name: size for name, size in sizes.items() if name in own}
    return cast(Algorithm, replace(cast(Any, method), **known))


def _is_finite(vector: Tensor) -> bool:
    """One pass: a finite sum has finite terms; only one that is not finite may have overflowed."""
    # The second test tells an overflow of the sum from an entry that is not finite.
    return bool(vector.sum().isfinite()) or bool(vector.isfinite().all())


# So that a State saved by itself can be read with `weights_only=True`.
torch.serialization.add_safe_globals([State])
