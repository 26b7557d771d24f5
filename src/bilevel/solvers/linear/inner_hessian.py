"""∇²y g(x, y) as the linear solvers see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from torch import Tensor

from bilevel.oracles.plans import Contract, do
from bilevel.oracles.points import Linear, Oracle
from bilevel.problem.sampling import Streams
from bilevel.solvers.linear.base import Hessian
from bilevel.solvers.measured import Measured


class InnerHessian(Hessian):
    """The inner Hessian at one point: linearised once for all rows, and again for each batch."""

    def __init__(self, oracle: Oracle, x: Tensor, y: Tensor, streams: Streams) -> None:
        self._oracle, self._x, self._y, self.streams = oracle, x, y, streams
        self.size, self._draws = oracle.y_size, oracle.is_random

    @cached_property
    def full(self) -> Linear:
        """The linearisation on all rows."""
        return self._oracle.linearize(self._x, self._y)

    def product(self, v: Tensor) -> Tensor:
        return self.full.hvp(v)

    def matrix(self, like: Tensor) -> Tensor:
        found = None if self._draws else self.full.matrix()
        return super().matrix(like) if found is None else found

    def term(self, v: Tensor) -> Tensor:
        # Independent masks, like the batches B_j: one mask for all terms would bias v.
        return self._oracle.linearize(self._x, self._y).hvp(v) if self._draws else self.product(v)

    def sampled_product(self, v: Tensor, batch: int | None) -> Tensor:
        rows = self.streams.rows("hessian", batch)
        if rows is None:
            return self.term(v)
        return self._oracle.linearize(self._x, self._y, rows).hvp(v)

    def contract(self, r: Tensor, sizes: Sequence[int | None], lr: float) -> tuple[Tensor, Tensor]:
        batches = self.streams.of_sizes("hessian", sizes)
        # On all rows one linearisation serves all products; a plan would make one per product.
        if not batches or batches[0] is None:
            return super().contract(r, sizes, lr)
        return do(Contract(self._x, self._y, r, batches, lr), self._oracle)

    def cross(self, v: Tensor, batch: int | None) -> Tensor:
        """∇x∇y g v, on its own batch or on all rows."""
        rows = self.streams.rows("cross", batch)
        if rows is None:
            return self.full.cross(v)
        return self._oracle.linearize(self._x, self._y, rows).cross(v)

    def rate(self, measured: Measured) -> float:
        return measured.at(self._oracle, self._x, self._y, self.streams)

    def diagonal(self) -> Tensor:
        return self.full.diagonal()

    def inverse(self) -> Callable[[Tensor], Tensor]:
        return self.full.inverse()
