"""Any oracle, with a tally (see `Counts` for what counts as what)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor

from bilevel.oracles.plans import Descend
from bilevel.oracles.points import Forwarding, Inner, Linear, Oracle, Outer, Plan, RidgeTerm
from bilevel.oracles.prices import CROSS, GRADIENT, HVP, OUTER, Counts, Price, Tally
from bilevel.problem.sources import Rows


class CountingOracle(Forwarding):
    """Counts what its points compute, and what an accelerated plan amounts to.

    Example:
        >>> from bilevel.oracles import CountingOracle, make
        >>> from bilevel.problem.examples import means
        >>> oracle = CountingOracle(make(problem := means()))
        >>> around = oracle.linearize(problem.x0, problem.y0)
        >>> _ = around.hvp(problem.y0), around.hvp(problem.y0)
        >>> oracle.counts.hv, oracle.counts.hv_samples
        (2, 100)
    """

    def __init__(self, oracle: Oracle, tally: Tally | None = None) -> None:
        super().__init__(oracle)
        self._tally = Tally() if tally is None else tally

    @property
    def counts(self) -> Counts:
        """What has been computed so far."""
        return self._tally.counts

    def outer(self, x: Tensor, y: Tensor, rows: Rows = None) -> Outer:
        # A loss without data counts as one row.
        count = (self.outer_rows or 1) if rows is None else len(rows)
        return _CountedOuter(self.oracle.outer(x, y, rows), self._tally, count)

    def inner(self, x: Tensor, y: Tensor, rows: Rows = None) -> Inner:
        count = (self.inner_rows or 1) if rows is None else len(rows)
        return _CountedInner(self.oracle.inner(x, y, rows), self._tally, count)

    def linearize(self, x: Tensor, y: Tensor, rows: Rows = None) -> Linear:
        count = (self.inner_rows or 1) if rows is None else len(rows)
        return _CountedLinear(self.oracle.linearize(x, y, rows), self._tally, count)

    def again(self, point: Inner, x: Tensor, rows: Rows) -> Callable[[Tensor], Linear]:
        assert isinstance(point, _CountedInner)
        inner, count = point.inside()
        made = self.oracle.again(inner, x, rows)
        return lambda y: _CountedLinear(made(y), self._tally, count)

    def ridge(self, x: Tensor) -> RidgeTerm | None:
        return self.oracle.ridge(x)

    def accelerate(self, plan: Plan[Any]) -> Any:
        self._tally.look()
        if isinstance(plan, Descend):  # its steps may be as slow as a network
            plan = replace(plan, look=self._tally.watch)
        done = self.oracle.accelerate(plan)
        if done is not None:  # the plain form would have paid call by call
            inner, outer = self.inner_rows or 1, self.outer_rows or 1
            self._tally.pay(
                [
                    (price, len(r) if r is not None else outer if price.gc_f else inner)
                    for price, r in plan.bill()
                ]
            )
        return done


def _ask(tally: Tally, price: Price, rows: int) -> None:
    """One call, which is about to be made."""
    tally.look()
    tally.pay([(price, rows)])


class _CountedOuter(Outer):
    def __init__(self, point: Outer, tally: Tally, rows: int) -> None:
        self._point, self._tally, self._rows = point, tally, rows

    def value(self) -> Tensor:
        # Values are free, here and below, by the convention of `Counts`.
        return self._point.value()

    def gradient(self) -> tuple[Tensor, Tensor]:
        _ask(self._tally, OUTER, self._rows)
        return self._point.gradient()


class _CountedInner(Inner):
    def __init__(self, point: Inner, tally: Tally, rows: int) -> None:
        self._point, self._tally, self._rows = point, tally, rows

    def inside(self) -> tuple[Inner, int]:
        """What is counted, and its rows."""
        return self._point, self._rows

    def value(self) -> Tensor:
        return self._point.value()

    def gradient(self) -> Tensor:
        _ask(self._tally, GRADIENT, self._rows)
        return self._point.gradient()

    def value_and_gradient(self) -> tuple[Tensor, Tensor]:
        _ask(self._tally, GRADIENT, self._rows)
        return self._point.value_and_gradient()

    def gradient_x(self) -> Tensor:
        _ask(self._tally, GRADIENT, self._rows)
        return self._point.gradient_x()

    def gradients(self) -> tuple[Tensor, Tensor]:
        _ask(self._tally, GRADIENT + GRADIENT, self._rows)
        return self._point.gradients()


class _CountedLinear(_CountedInner, Linear):
    _point: Linear

    def hvp(self, v: Tensor) -> Tensor:
        _ask(self._tally, HVP, self._rows)
        return self._point.hvp(v)

    def cross(self, v: Tensor) -> Tensor:
        _ask(self._tally, CROSS, self._rows)
        return self._point.cross(v)

    def both(self, v: Tensor) -> tuple[Tensor, Tensor]:
        _ask(self._tally, HVP + CROSS, self._rows)
        return self._point.both(v)

    def matrix(self) -> Tensor | None:
        found = self._point.matrix()
        if found is not None:  # as many products, however they were made
            _ask(self._tally, Price(*(len(found) * a for a in HVP)), self._rows)
        return found

    def diagonal(self) -> Tensor:
        # Free, as is `inverse`: neither is a product in the sense of Definition 2.
        return self._point.diagonal()

    def inverse(self) -> Any:
        return self._point.inverse()
