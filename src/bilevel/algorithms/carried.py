"""Directions carried from step to step by their change on one batch: SARAH, STORM, PAGE."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from bilevel.algorithms.contract import State
from bilevel.algorithms.single_loop import Directions, SingleLoop
from bilevel.algorithms.triple import TripleLoop, triple
from bilevel.arguments import Count, Fraction, Natural, Positive, Schedule, at, fraction
from bilevel.oracles.plans import Implicit, Series, do
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import Cost
from bilevel.problem.sampling import Streams
from bilevel.problem.sources import Rows
from bilevel.schedules import decaying
from bilevel.solvers.updates.base import Update
from bilevel.solvers.updates.descent import Descent

Points = Mapping[str, Tensor]
Evaluate = Callable[[Points], Mapping[str, Tensor]]


def carry(points: Points, evaluate: Evaluate, keep: float) -> dict[str, Tensor]:
    """d(z) ≈ d_B(z) + keep · (d − d_B(z′)), for each direction d that `evaluate` gives on rows B.

    z are the points now and z′ those of the step before; on one batch for both, their noise cancels
    in the difference. keep = 1 is SARAH (SPIDER), keep = 1 − η is STORM with the momentum η, and
    keep = 0 starts afresh, for half the price.

    Args:
        points: of the state, with what `started` has put and `remembered` keeps there.
        evaluate: the directions at given points, by name, on the rows of this step.
        keep: how much of the carried direction stays.

    Reference: Nguyen, Liu, Scheinberg & Takáč, ICML 2017 (SARAH); Fang, Li, Lin & Zhang,
    NeurIPS 2018 (SPIDER); Cutkosky & Orabona, NeurIPS 2019 (STORM).
    """
    now = dict(evaluate(points))
    if keep == 0:
        return now
    end = len(" before")
    there = {name[:-end]: p for name, p in points.items() if name.endswith(" before")}
    for name, before in evaluate(there).items():
        now[name] = now[name] + keep * (points[f"d_{name}"] - before)
    return now


def started(points: Points, carried: Iterable[str]) -> dict[str, Tensor]:
    """Points before the first step, with those of a step before and directions of zero."""
    return {**points, **remembered(points, {n: torch.zeros_like(points[n]) for n in carried})}


def remembered(points: Points, directions: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What the next step needs: where these directions were taken, and the directions."""
    plain = {n: p for n, p in points.items() if " " not in n and not n.startswith("d_")}
    before = {f"{name} before": point for name, point in plain.items()}
    return {**before, **{f"d_{name}": d for name, d in directions.items()}}


def implicit(oracle: Oracle, inner: Rows, outer: Rows, series: Series, cross: Rows) -> Evaluate:
    """∇y g and the hypergradient by a series; no inner steps: y moves along its own direction."""

    def at_point(points: Points) -> dict[str, Tensor]:
        x, y = points["x"], points["y"]
        found = do(Implicit(x, y, (), outer, series, cross), oracle)
        return {"y": oracle.inner(x, y, inner).gradient(), "x": oracle.pull(x, found.covector)}

    return at_point


@dataclass(frozen=True, kw_only=True)
class Carried(SingleLoop):
    """A single loop whose directions are carried.

    A method says how much of them it keeps, and what they are on the rows of a step.
    """

    carried: ClassVar[str] = "xyv"  # the points whose directions are

    @abstractmethod
    def keeps(self, oracle: Oracle, k: int, streams: Streams) -> float:
        """How much of the carried directions stays at step k; 0 forgets them."""

    @abstractmethod
    def on_rows(self, oracle: Oracle, streams: Streams, fresh: bool) -> Evaluate:
        """The directions at given points, on rows that serve both: there their noise cancels."""

    def start(self, oracle: Oracle, x0: Tensor, y0: Tensor) -> dict[str, Tensor]:
        return started(super().start(oracle, x0, y0), self.carried)

    def directions(self, oracle: Oracle, state: State, streams: Streams) -> Directions:
        keep = self.keeps(oracle, state.step, streams)
        d = carry(state.points, self.on_rows(oracle, streams, keep == 0), keep)
        return Directions(d, kept=remembered(state.points, d))


@dataclass(frozen=True, kw_only=True)
class Refreshed(TripleLoop, Carried):
    """SOBA's three directions, carried whole, and taken on all rows from time to time."""

    @abstractmethod
    def is_fresh(self, oracle: Oracle, k: int, streams: Streams) -> bool:
        """Whether step k uses all rows."""

    def keeps(self, oracle: Oracle, k: int, streams: Streams) -> float:
        return 0.0 if self.is_fresh(oracle, k, streams) else 1.0

    def on_rows(self, oracle: Oracle, streams: Streams, fresh: bool) -> Evaluate:
        inner, outer = (streams.rows(role, self.batch) for role in ("inner", "outer"))
        rows = (None, None) if fresh else (inner, outer)
        return lambda points: triple(oracle, points, *rows)


@dataclass(frozen=True, kw_only=True)
class SelfCorrecting(Carried):
    """STORM: a part η of each carried direction is forgotten.

    Args:
        momentum: η, or a schedule; of the order k^(−2/3).
    """

    momentum: Fraction | Schedule = decaying(0.5, 2 / 3)

    def keeps(self, oracle: Oracle, k: int, streams: Streams) -> float:
        # The first step has no earlier direction to correct: a plain estimate.
        return 1 - fraction("momentum", at(self.momentum, k)) if k else 0.0

    def once(self) -> Cost:
        """What the directions cost at one point."""
        return Cost(*self.asks)

    def price(self, k: int) -> Cost:
        return self.once() + self.once() if k > 0 else self.once()


@dataclass(frozen=True, kw_only=True)
class SelfCorrectingSeries(SelfCorrecting):
    """STORM on y and on the hypergradient by a Neumann series.

    A method says which terms of the series it takes.
    """

    inner_lr: float | Schedule = decaying(0.1, 1 / 3)
    neumann_terms: Natural = 10
    neumann_lr: Positive = 0.1
    batch: Count | None = 64

    others, carried = "", "xy"

    @abstractmethod
    def series(self, streams: Streams) -> Series:
        """The terms, on batches that were drawn for this step."""

    def updates(self) -> Mapping[str, Update]:
        return {"y": Descent(self.inner_lr), "x": self.moves_x(decaying(0.1, 1 / 3))}

    def on_rows(self, oracle: Oracle, streams: Streams, fresh: bool) -> Evaluate:
        series = self.series(streams)
        S, T, C = (streams.rows(role, self.batch) for role in ("inner", "outer", "cross"))
        return implicit(oracle, S, T, series, C)
