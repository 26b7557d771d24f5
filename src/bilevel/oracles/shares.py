"""Which rows and which part of x belong to a process, and how much of a loss they account for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from bilevel.problem.model import Model
from bilevel.problem.parts import Part
from bilevel.problem.peers import Peers
from bilevel.problem.sharding import Sharded
from bilevel.problem.sources import Rows


@dataclass(frozen=True)
class Own:
    """This process's part of a batch: its rows as the local oracle numbers them (None for all
    that it has), and its share of the loss; a share of zero means none."""

    rows: Rows
    share: float


class View(ABC):
    """How this process's oracle sees all the rows and the whole of x."""

    covectors_of_x = True  # whether a covector is a vector of x

    @abstractmethod
    def inner(self, rows: Rows) -> Own: ...

    @abstractmethod
    def outer(self, rows: Rows) -> Own: ...

    some: Rows  # any row that this process has, as its oracle numbers them

    @abstractmethod
    def workers(self, rows: Rows) -> int:
        """How many processes do the work that needs no rows, each counting for a part of it."""

    def restrict(self, x: Tensor) -> Tensor:
        """The local oracle's x."""
        return x

    def extend(self, covector: Tensor, x: Tensor) -> Tensor:
        """A covector of the whole of x from one of the local oracle's."""
        return covector


class PartsView(View):
    """A part of the rows of each loss. Without data there are no parts: each does all of it."""

    def __init__(
        self, inner: Part | None, outer: Part | None, peers: Peers, model: Model | None
    ) -> None:
        self._inner, self._outer, self._peers, self._model = inner, outer, peers, model
        self.some = None if inner is None else self._own(inner, inner.rows[:1]).rows

    def inner(self, rows: Rows) -> Own:
        return self._own(self._inner, rows)

    def outer(self, rows: Rows) -> Own:
        return self._own(self._outer, rows)

    def workers(self, rows: Rows) -> int:
        return self._peers.size

    def restrict(self, x: Tensor) -> Tensor:
        if self._model is None or self._inner is None:
            return x
        return self._model.restrict(x, self._inner)

    def extend(self, covector: Tensor, x: Tensor) -> Tensor:
        if self._model is None or self._inner is None:
            return covector
        return self._model.extend(covector, x, self._inner)

    def _own(self, part: Part | None, rows: Rows) -> Own:
        if part is None:  # every process can do all of it: each counts for its share
            return Own(rows, 1 / self._peers.size)
        # Losses are means over rows: a process counts by how many rows of the batch it holds.
        own = part.rows if rows is None else part.among(rows)
        share = len(own) / (part.total if rows is None else len(rows))
        if self._model is None or not self._model.renumbers:
            return Own(own, share)
        return Own(None if rows is None else own - part.first, share)


class TasksView(View):
    """Rows are tasks: every size-th belongs to this process. g is a sum over tasks, f a mean."""

    covectors_of_x = False

    def __init__(self, tasks: int, peers: Peers) -> None:
        self._tasks, self._peers = tasks, peers
        self.some = torch.zeros(1, dtype=torch.int64)  # every process has all tasks

    def inner(self, rows: Rows) -> Own:
        own = self._among(rows)
        # A sum over tasks needs no weights: each process adds its own terms.
        return Own(own, 1.0 if len(own) else 0.0)

    def outer(self, rows: Rows) -> Own:
        own = self._among(rows)
        return Own(own, len(own) / (self._tasks if rows is None else len(rows)))

    def workers(self, rows: Rows) -> int:
        rows = torch.arange(self._tasks) if rows is None else rows
        return len(set((rows % self._peers.size).tolist()))

    def _among(self, rows: Rows) -> Tensor:
        rows = torch.arange(self._tasks) if rows is None else rows
        return rows[rows % self._peers.size == self._peers.rank]


def view_of(problem: Sharded) -> View:
    if problem.tasks is not None:
        assert problem.inner_data is not None
        return TasksView(len(problem.inner_data), problem.peers)
    return PartsView(problem.inner_part, problem.outer_part, problem.peers, problem.model)
