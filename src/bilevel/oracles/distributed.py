"""Any oracle with its rows spread over processes: sums by explicit collectives, once each."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from bilevel.oracles.points import Inner, Linear, Oracle, Outer, RidgeTerm, Start
from bilevel.oracles.shares import view_of
from bilevel.problem.sharding import Sharded
from bilevel.problem.sources import Rows


class DistributedOracle(Oracle):
    """Points of all rows, from each process's own.

    Vectors of y are summed over the processes, to the same bits on each. Derivatives in x stay
    where they are until `pull`, which sums them: one collective per hypergradient. Plans run point
    by point here: a model can accelerate a loop only if it holds all the rows.
    """

    def __init__(self, local: Oracle, problem: Sharded) -> None:
        self._local, self.view, self.peers = local, view_of(problem), problem.peers
        # The whole of x, of which the local oracle may see only a part (`restrict`).
        self.x_size, self.y_size = len(problem.x0), local.y_size
        data = problem.inner_data, problem.outer_data
        self.inner_rows, self.outer_rows = (None if part is None else part.count for part in data)
        self.seed, self.dtype, self.device = local.seed, local.dtype, local.device
        self.is_random, self.is_stream = local.is_random, local.is_stream
        self.is_coarse = local.is_coarse

    @property
    def linear_bytes(self) -> int | None:  # the largest: all processes must keep the same steps
        mine = self._local.linear_bytes
        return None if mine is None else int(self.peers.largest(mine))

    def outer(self, x: Tensor, y: Tensor, rows: Rows = None) -> Outer:
        own = self.view.outer(rows)
        # A process with no rows in the batch makes no point, but joins every sum: a collective
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
        return _SummedLinear(self, point, own.share, x, y)

    def some(self, x: Tensor, y: Tensor) -> Linear:
        """A linearisation on one of this process's own rows."""
        return self._local.linearize(self.view.restrict(x), y, self.view.some)

    def again(self, point: Inner, x: Tensor, rows: Rows) -> Callable[[Tensor], Linear]:
        assert isinstance(point, _SummedInner)
        own = self.view.inner(rows)
        if point.inside is None:
            return lambda y: _SummedLinear(self, None, own.share, x, y)
        made = self._local.again(point.inside, self.view.restrict(x), own.rows)
        return lambda y: _SummedLinear(self, made(y), own.share, x, y)

    def pull(self, x: Tensor, covector: Tensor, rows: Rows = None) -> Tensor:
        # No rows here, so no features: zeros, to take part in the sum.
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

    def ridge(self, x: Tensor) -> RidgeTerm | None:
        # It does not depend on rows: each process knows it in full.
        known = self._local.ridge(self.view.restrict(x))
        if known is None:
            return None
        return RidgeTerm(known.c, lambda u: self.view.extend(known.of_x(u), x))

    def nothing(self, x: Tensor) -> Tensor:
        """The covector of no rows; empty where covectors are those of features."""
        return torch.zeros_like(x) if self.view.covectors_of_x else x.new_zeros(0)


class _SummedOuter(Outer):
    """Sums the point of this process's rows, which is None if it has none of the batch."""

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
        self.inside = point

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

    def __init__(
        self, owner: DistributedOracle, point: Linear | None, share: float, x: Tensor, y: Tensor
    ) -> None:
        super().__init__(owner, point, share, x)
        self._y = y

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
        """That of all rows, to the same bits on each process, if the local oracle has sketches;
        else the mean of those of the processes' own rows, which are all close to it."""
        try:
            return super().inverse()
        except NotImplementedError:
            local = self._some.inverse()
            return lambda v: self._sum(local(v))

    def sketch(self) -> Tensor:
        return self._owner.peers.sum(self._some.sketch() * self._share)

    def inverse_from(self, sketch: Tensor) -> Callable[[Tensor], Tensor] | None:
        return self._some.inverse_from(sketch)

    @property
    def _some(self) -> Linear:
        """A point even on a process with no rows in the batch: its share is zero, but not its
        size."""
        return self._point or self._owner.some(self._x, self._y)


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
