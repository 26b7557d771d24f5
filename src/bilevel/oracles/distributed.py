"""Any oracle with its rows spread over processes: sums by explicit collectives, once each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bilevel.models.softmax.form import SoftmaxForm
from bilevel.oracles.base import Linearization, Oracle
from bilevel.problem.peers import Peers
from bilevel.problem.sharding import Part, Sharded
from bilevel.problem.sources import Rows


@dataclass(frozen=True)
class Own:
    """What of a batch is this process's: its rows as the local oracle numbers them (None for all
    that it has), and its share of the loss; a share of zero means none."""

    rows: Rows
    share: float


class View(ABC):
    """How this process's oracle sees the rows and the x of all."""

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
    """A part of the rows of each loss, under their numbers among all. No data, no parts."""

    def __init__(self, inner: Part | None, outer: Part | None, peers: Peers) -> None:
        self._inner, self._outer, self._peers = inner, outer, peers

    def inner(self, rows: Rows) -> Own:
        return self._own(self._inner, rows)

    def outer(self, rows: Rows) -> Own:
        return self._own(self._outer, rows)

    def workers(self, rows: Rows) -> int:
        return self._peers.size

    def number(self, rows: Tensor, part: Part) -> Rows:
        """The local oracle's numbers of rows of the part."""
        return rows

    def _own(self, part: Part | None, rows: Rows) -> Own:
        if part is None:  # every process can do the whole of it: each counts for its share
            return Own(rows, 1 / self._peers.size)
        if rows is None:
            return Own(self.number(part.rows, part), len(part) / part.total)
        own = part.among(rows)
        return Own(self.number(own, part), len(own) / len(rows))


class SoftmaxView(PartsView):
    """The local oracle has only its own rows, numbered from zero, and only their weights in x."""

    def __init__(self, inner: Part, outer: Part, peers: Peers, weighted: bool) -> None:
        super().__init__(inner, outer, peers)
        self._part, self._weighted = inner, weighted

    def number(self, rows: Tensor, part: Part) -> Rows:
        return None if rows is part.rows else rows - part.first

    def restrict(self, x: Tensor) -> Tensor:
        if not self._weighted:
            return x
        weights, penalties = x[self._part.first : self._part.end], x[self._part.total :]
        return torch.cat([weights, penalties]) if len(penalties) else weights

    def extend(self, covector: Tensor, x: Tensor) -> Tensor:
        if not self._weighted:
            return covector
        whole = torch.zeros_like(x)
        whole[self._part.first : self._part.end] = covector[: len(self._part)]
        whole[self._part.total :] = covector[len(self._part) :]
        return whole


class TasksView(View):
    """Rows are tasks: every size-th is this process's. g is a sum over tasks, f a mean."""

    def __init__(self, tasks: int, peers: Peers) -> None:
        self._tasks, self._peers = tasks, peers

    def inner(self, rows: Rows) -> Own:
        own = self._among(rows)
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
    """Values, gradients and products of all rows, from each process's own.

    Vectors of y are summed over the processes, to the same bits on each. Derivatives by x stay
    where they are until `pull`, which sums them: one collective a hypergradient.
    """

    def __init__(self, local: Oracle, view: View, problem: Sharded, x_size: int) -> None:
        self._local, self._view, self.peers = local, view, problem.peers
        self.x_size, self.y_size = x_size, local.y_size
        data = problem.inner_data, problem.outer_data
        self.inner_rows, self.outer_rows = (None if part is None else len(part) for part in data)
        self.shared_batch, self.chunk = local.shared_batch, local.chunk
        self.seed, self.dtype, self.device = local.seed, local.dtype, local.device

    def outer_value(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        own = self._view.outer(rows)
        return self._sum(own, y.new_zeros(()), lambda r: self._local.outer_value(self._x(x), y, r))

    def inner_value(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        own = self._view.inner(rows)
        return self._sum(own, y.new_zeros(()), lambda r: self._local.inner_value(self._x(x), y, r))

    def outer_gradient(self, x: Tensor, y: Tensor, rows: Rows = None) -> tuple[Tensor, Tensor]:
        own = self._view.outer(rows)
        if not own.share:
            return self._nothing(x), self.peers.sum(torch.zeros_like(y))
        of_x, of_y = self._local.outer_gradient(self._x(x), y, own.rows)
        return self._view.extend(of_x * own.share, x), self.peers.sum(of_y * own.share)

    def inner_gradient(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        own = self._view.inner(rows)
        zero = torch.zeros_like(y)
        return self._sum(own, zero, lambda r: self._local.inner_gradient(self._x(x), y, r))

    def inner_value_and_gradient(
        self, x: Tensor, y: Tensor, rows: Rows = None
    ) -> tuple[Tensor, Tensor]:
        def both(own: Rows) -> Tensor:
            value, gradient = self._local.inner_value_and_gradient(self._x(x), y, own)
            return torch.cat([value.reshape(1), gradient])

        own = self._view.inner(rows)
        found = self._sum(own, y.new_zeros(len(y) + 1), both)
        return found[0], found[1:]

    def linearize(self, x: Tensor, y: Tensor, rows: Rows = None) -> Linearization:
        own = self._view.inner(rows)
        around = self._local.linearize(self._x(x), y, own.rows) if own.share else None
        return _DistributedLinearization(self, around, own.share, x)

    def pull(self, x: Tensor, covector: Tensor, rows: Rows = None) -> Tensor:
        own = self._view.inner(rows)
        if not len(covector):
            return self.peers.sum(torch.zeros_like(x))
        if self.shared_batch is None:  # a covector is a vector of x
            return self.peers.sum(covector.clone())
        return self.peers.sum(self._local.pull(x, covector, own.rows))

    def start(self, x: Tensor, y: Tensor) -> Tensor:
        return self._local.start(self._x(x), y)

    def pull_start(self, x: Tensor, r: Tensor, rows: Rows = None) -> Tensor:
        own = self._view.inner(rows)
        if self.shared_batch is not None and not own.share:
            return self._nothing(x)
        found = self._local.pull_start(self._x(x), r, own.rows)
        return self._view.extend(found / self._view.workers(rows), x)

    def extend(self, covector: Tensor, x: Tensor) -> Tensor:
        return self._view.extend(covector, x)

    def _x(self, x: Tensor) -> Tensor:
        return self._view.restrict(x)

    def _nothing(self, x: Tensor) -> Tensor:
        """The covector of no rows; where covectors are of features, there are none."""
        return torch.zeros_like(x) if self.shared_batch is None else x.new_zeros(0)

    def _sum(self, own: Own, zero: Tensor, local: Callable[[Rows], Tensor]) -> Tensor:
        return self.peers.sum(local(own.rows) * own.share if own.share else zero)


class _DistributedLinearization(Linearization):
    """That of this process's rows; None if it has none of the batch."""

    def __init__(
        self, owner: DistributedOracle, around: Linearization | None, share: float, x: Tensor
    ) -> None:
        self._owner, self._around, self._share, self._x = owner, around, share, x

    def gradient(self) -> Tensor:
        return self._sum(lambda around: around.gradient())

    def hvp(self, v: Tensor) -> Tensor:
        return self._sum(lambda around: around.hvp(v))

    def cross(self, v: Tensor) -> Tensor:
        if self._around is None:
            return self._owner._nothing(self._x)
        return self._owner.extend(self._around.cross(v) * self._share, self._x)

    def diagonal(self) -> Tensor:
        return self._sum(lambda around: around.diagonal())

    def approximate_inverse(self) -> Callable[[Tensor], Tensor]:
        """The mean of those of the processes' own rows, which are all near to that of all rows."""
        local = None if self._around is None else self._around.approximate_inverse()
        share = self._share

        def apply(v: Tensor) -> Tensor:
            return self._owner.peers.sum(torch.zeros_like(v) if local is None else local(v) * share)

        return apply

    def _sum(self, product: Callable[[Linearization], Tensor]) -> Tensor:
        zero = self._x.new_zeros(self._owner.y_size)
        found = zero if self._around is None else product(self._around) * self._share
        return self._owner.peers.sum(found)


def distribute(local: Oracle, problem: Sharded) -> DistributedOracle:
    """The oracle of all rows from that of this process's."""
    peers, inner, outer = problem.peers, problem.inner_part, problem.outer_part
    form = problem.closed_form
    view: View
    if problem.by_task:
        assert problem.inner_data is not None
        view = TasksView(len(problem.inner_data), peers)
    elif isinstance(form, SoftmaxForm):
        assert inner is not None
        assert outer is not None
        view = SoftmaxView(inner, outer, peers, form.weighted)
    else:
        view = PartsView(inner, outer, peers)
    return DistributedOracle(local, view, problem, len(problem.x0))
