"""Any oracle with its rows spread over processes: sums by explicit collectives, once each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bilevel.oracles.points import Inner, Linear, Oracle, Outer, Start
from bilevel.problem.model import Model
from bilevel.problem.parts import Part
from bilevel.problem.peers import Peers
from bilevel.problem.sharding import Sharded
from bilevel.problem.sources import Rows


@dataclass(frozen=True)
class Own:
    """What of a batch is this process's: its rows as the local oracle numbers them (None for all
    that it has), and its share of the loss; a share of zero means none."""

    rows: Rows
    share: float


class View(ABC):
    """How this process's oracle sees the rows and the x of all."""

    covectors_of_x = True  # whether a covector is a vector of x

    @abstractmethod
    def inner(self, rows: Rows) -> Own: ...

    @abstractmethod
    def outer(self, rows: Rows) -> Own: ...

    @abstractmethod
    def workers(self, rows: Rows) -> int:
        """How many processes do what needs no row of theirs, and so count for a part of it."""

    def restrict(self, x: Tensor) -> Tensor:
        """The local oracle's x."""
        return x

    def extend(self, covector: Tensor, x: Tensor) -> Tensor:
        """A covector of all of x from one of the local oracle's."""
        return covector


class PartsView(View):
    """A part of the rows of each loss. Without data there are no parts: each does the whole."""

    def __init__(
        self, inner: Part | None, outer: Part | None, peers: Peers, model: Model | None
    ) -> None:
        self._inner, self._outer, self._peers, self._model = inner, outer, peers, model

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
        if part is None:  # every process can do the whole of it: each counts for its share
            return Own(rows, 1 / self._peers.size)
        # Losses are means over rows: each process counts by the rows of the batch that it holds.
        own = part.rows if rows is None else part.among(rows)
        share = len(own) / (part.total if rows is None else len(rows))
        if self._model is None or not self._model.renumbers:
            return Own(own, share)
        return Own(None if rows is None else own - part.first, share)


class TasksView(View):
    """Rows are tasks: every size-th is this process's. g is a sum over tasks, f a mean."""

    covectors_of_x = False

    def __init__(self, tasks: int, peers: Peers) -> None:
        self._tasks, self._peers = tasks, peers

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


class DistributedOracle(Oracle):
    """Points of all rows, from each process's own.

    Vectors of y are summed over the processes, to the same bits on each. Derivatives by x stay
    where they are until `pull`, which sums them: one collective per hypergradient. Plans are done
    by points here: what a model accelerates is a loop over rows that are all its own.
    """

    def __init__(self, local: Oracle, problem: Sharded) -> None:
        self._local, self.view, self.peers = local, _view(problem), problem.peers
        # All of x, of which the local oracle may see a part (`restrict`).
        self.x_size, self.y_size = len(problem.x0), local.y_size
        data = problem.inner_data, problem.outer_data
        self.inner_rows, self.outer_rows = (None if part is None else len(part) for part in data)
        self.seed, self.dtype, self.device = local.seed, local.dtype, local.device

    def outer(self, x: Tensor, y: Tensor, rows: Rows = None) -> Outer:
        own = self.view.outer(rows)
        # A process without rows of the batch makes no point, but joins every sum: a collective
        # that one process skips would leave the others waiting.
        point = self._local.outer(self.view.restrict(x), y, own.rows) if own.share else None
        return _SummedOuter(self, point, own.share, x)

    def inner(self, x: Tensor, y: Tensor, rows: Rows = None) -> Inner:
        own = self.view.inner(rows)
        point = self._local.inner(self.view.restrict(x), y, own.rows) if own.share else None
        return _SummedInner(self, point, own.share, x)

    def linearize(self, x: Tensor, y: Tensor, rows: Rows = None) -> Linear:
        own = self.view.inner(rows)
        point = self._local.linearize(self.view.restrict(x), y, own.rows) if own.share else None
        return _SummedLinear(self, point, own.share, x)

    def pull(self, x: Tensor, covector: Tensor, rows: Rows = None) -> Tensor:
        # No features here, since no rows: zeros, to take part in the sum.
        if not len(covector):
            return self.peers.sum(torch.zeros_like(x))
        if self.view.covectors_of_x:
            # A copy, as the sum may overwrite it, and the covector is the caller's.
            return self.peers.sum(covector.clone())
        return self.peers.sum(self._local.pull(x, covector, self.view.inner(rows).rows))

    def start(self, x: Tensor, y: Tensor, rows: Rows = None) -> Start:
        own = self.view.inner(rows)
        here = own.share > 0 or self.view.covectors_of_x
        local = self._local.start(self.view.restrict(x), y, own.rows)
        # Each worker computes the same covector of the start: it counts for 1/workers.
        return _SharedStart(self, local, x, self.view.workers(rows) if here else 0)

    def nothing(self, x: Tensor) -> Tensor:
        """The covector of no rows; where covectors are of features, there are none."""
        return torch.zeros_like(x) if self.view.covectors_of_x else x.new_zeros(0)


class _SummedOuter(Outer):
    """That of this process's rows; None if it has none of the batch."""

    def __init__(self, owner: DistributedOracle, point: Outer | None, share: float, x: Tensor):
        self._owner, self._point, self._share, self._x = owner, point, share, x

    def value(self) -> Tensor:
        mine = self._x.new_zeros(()) if self._point is None else self._point.value() * self._share
        return self._owner.peers.sum(mine)

    def gradient(self) -> tuple[Tensor, Tensor]:
        owner, x = self._owner, self._x
        if self._point is None:
            return owner.nothing(x), owner.peers.sum(x.new_zeros(owner.y_size))
        of_x, of_y = self._point.gradient()
        return owner.view.extend(of_x * self._share, x), owner.peers.sum(of_y * self._share)


class _SummedInner(Inner):
    def __init__(
        self, owner: DistributedOracle, point: Inner | None, share: float, x: Tensor
    ) -> None:
        self._owner, self._point, self._share, self._x = owner, point, share, x

    def value(self) -> Tensor:
        mine = self._x.new_zeros(()) if self._point is None else self._point.value() * self._share
        return self._owner.peers.sum(mine)

    def gradient(self) -> Tensor:
        return self._sum(None if self._point is None else self._point.gradient())

    def value_and_gradient(self) -> tuple[Tensor, Tensor]:
        both = None  # one collective for the two
        if self._point is not None:
            value, gradient = self._point.value_and_gradient()
            both = torch.cat([value.reshape(1), gradient])
        found = self._sum(both, self._owner.y_size + 1)
        return found[0], found[1:]

    def gradient_x(self) -> Tensor:
        return self._extend(None if self._point is None else self._point.gradient_x())

    def _extend(self, covector: Tensor | None) -> Tensor:
        if covector is None:
            return self._owner.nothing(self._x)
        return self._owner.view.extend(covector * self._share, self._x)

    def _sum(self, mine: Tensor | None, size: int | None = None) -> Tensor:
        zero = self._x.new_zeros(self._owner.y_size if size is None else size)
        return self._owner.peers.sum(zero if mine is None else mine * self._share)


class _SummedLinear(_SummedInner, Linear):
    _point: Linear | None

    def hvp(self, v: Tensor) -> Tensor:
        return self._sum(None if self._point is None else self._point.hvp(v))

    def cross(self, v: Tensor) -> Tensor:
        return self._extend(None if self._point is None else self._point.cross(v))

    def both(self, v: Tensor) -> tuple[Tensor, Tensor]:
        hvp, cross = (None, None) if self._point is None else self._point.both(v)
        return self._sum(hvp), self._extend(cross)

    def diagonal(self) -> Tensor:
        return self._sum(None if self._point is None else self._point.diagonal())

    def inverse(self) -> Callable[[Tensor], Tensor]:
        """The mean of those of the processes' own rows, which are all near to that of all rows."""
        local = None if self._point is None else self._point.inverse()
        return lambda v: self._sum(None if local is None else local(v))


class _SharedStart(Start):
    """The same on every process: each of the `workers` counts for its share of the covector."""

    def __init__(self, owner: DistributedOracle, local: Start, x: Tensor, workers: int) -> None:
        self._owner, self._local, self._x, self._workers = owner, local, x, workers

    def point(self) -> Tensor:
        return self._local.point()

    def pull(self, r: Tensor) -> Tensor:
        if not self._workers:
            return self._owner.nothing(self._x)
        return self._owner.view.extend(self._local.pull(r) / self._workers, self._x)


def _view(problem: Sharded) -> View:
    if problem.tasks is not None:
        assert problem.inner_data is not None
        return TasksView(len(problem.inner_data), problem.peers)
    return PartsView(problem.inner_part, problem.outer_part, problem.peers, problem.model)
