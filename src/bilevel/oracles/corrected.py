"""A few rows in place of many: their losses, corrected to first order at one point.

Φ(x) is the stationary value in (y, v) of L(x, y, v) = f(x, y) − ⟨v, ∇y g(x, y)⟩, and the
gradient of L is (∇x f − ∇x∇y g v, ∇y f − ∇²y g v, −∇y g). A `Look` is L and this gradient on many
rows at one point: no inner solve. `Corrected` is the oracle of a few rows plus linear terms chosen
so that its L has the look's value and gradient there: SVRG's correction (Johnson & Zhang, 2013),
for L as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from bilevel.numerics.vectors import dot, norm
from bilevel.oracles.points import Forwarding, Inner, Linear, Oracle, Outer
from bilevel.problem.sources import Rows


class Sample(Forwarding):
    """An oracle restricted to these rows."""

    def __init__(self, oracle: Oracle, inner: Rows, outer: Rows) -> None:
        super().__init__(oracle)
        self._inner, self._outer = inner, outer

    def rows(self, rows: Rows) -> Rows:
        return _of(self._inner, rows)

    def rows_of_f(self, rows: Rows) -> Rows:
        return _of(self._outer, rows)


def _of(chosen: Rows, rows: Rows) -> Rows:
    if chosen is None or rows is None:
        return chosen if rows is None else rows
    return chosen[rows]


@dataclass(frozen=True)
class Look:
    """L and its gradient at (x, y, v), on the rows of an oracle.

    Args:
        x, y, v: the point.
        f: the outer loss there.
        h: ∂L/∂x, which is ∇Φ(x) where r and g vanish.
        r: ∂L/∂y.
        g: ∇y g.
    """

    x: Tensor
    y: Tensor
    v: Tensor
    f: float
    h: Tensor
    r: Tensor
    g: Tensor

    @staticmethod
    def at(oracle: Oracle, x: Tensor, y: Tensor, v: Tensor) -> Look:
        around, outer = oracle.linearize(x, y), oracle.outer(x, y)
        f_x, f_y = outer.gradient()
        # One pass for both products: a look is to cost little more than a gradient.
        Hv, Jv = around.both(v)
        h = oracle.pull(x, f_x - Jv)
        return Look(x, y, v, float(outer.value()), h, f_y - Hv, around.gradient())

    @property
    def L(self) -> float:
        return self.f - dot(self.v, self.g)

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.L + norm(self.h) + norm(self.r) + norm(self.g))


class Corrected(Forwarding):
    """A sample's losses plus linear terms: at the look's point, L has its value and gradient.

    Args:
        sample: an oracle of a few rows.
        look: on many rows.
        radius: a quadratic term keeps the linear term in x from leading further than this.
    """

    def __init__(self, sample: Oracle, look: Look, radius: float = math.inf) -> None:
        super().__init__(sample)
        own = Look.at(sample, look.x, look.y, look.v)
        self.look = look
        self._f, self._g = look.f - own.f, look.g - own.g
        self._x, self._y = look.h - own.h, look.r - own.r
        self.foreign = norm(self._x)  # the part of h that the sample does not see
        self._hold = self.foreign / radius if 0 < radius < math.inf else 0.0

    def outer(self, x: Tensor, y: Tensor, rows: Rows = None) -> Outer:
        moved, look = x - self.look.x, self.look
        # The term in x enters the gradient in `pull`, through which all derivatives in x pass once.
        shift = self._f + dot(self._x, moved) + dot(self._y, y - look.y)
        held = shift + self._hold / 2 * dot(moved, moved)
        return _ShiftedOuter(self.oracle.outer(x, y, rows), held, self._y)

    def inner(self, x: Tensor, y: Tensor, rows: Rows = None) -> Inner:
        shift = dot(self._g, y - self.look.y)
        return _ShiftedInner(self.oracle.inner(x, y, rows), shift, self._g)

    def linearize(self, x: Tensor, y: Tensor, rows: Rows = None) -> Linear:
        shift = dot(self._g, y - self.look.y)
        return _ShiftedLinear(self.oracle.linearize(x, y, rows), shift, self._g)

    def again(self, point: Inner, x: Tensor, rows: Rows) -> Callable[[Tensor], Linear]:
        assert isinstance(point, _ShiftedInner)
        made = self.oracle.again(point.inside, x, rows)
        return lambda y: _ShiftedLinear(made(y), dot(self._g, y - self.look.y), self._g)

    def pull(self, x: Tensor, covector: Tensor, rows: Rows = None) -> Tensor:
        # Here and not in `outer`: a covector may be one of features, this term is one of x.
        pulled = self.oracle.pull(x, covector, rows)
        return pulled + self._x + self._hold * (x - self.look.x)


class _ShiftedOuter(Outer):
    def __init__(self, point: Outer, value: float, f_y: Tensor) -> None:
        self._point, self._value, self._f_y = point, value, f_y

    def value(self) -> Tensor:
        return self._point.value() + self._value

    def gradient(self) -> tuple[Tensor, Tensor]:
        f_x, f_y = self._point.gradient()
        return f_x, f_y + self._f_y


class _ShiftedInner(Inner):
    def __init__(self, point: Inner, value: float, gradient: Tensor) -> None:
        self.inside, self._value, self._shift = point, value, gradient

    def value(self) -> Tensor:
        return self.inside.value() + self._value

    def gradient(self) -> Tensor:
        return self.inside.gradient() + self._shift

    def gradient_x(self) -> Tensor:
        return self.inside.gradient_x()


class _ShiftedLinear(_ShiftedInner, Linear):
    inside: Linear

    # Linear terms have no second derivatives.
    def hvp(self, v: Tensor) -> Tensor:
        return self.inside.hvp(v)

    def cross(self, v: Tensor) -> Tensor:
        return self.inside.cross(v)

    def both(self, v: Tensor) -> tuple[Tensor, Tensor]:
        return self.inside.both(v)

    def matrix(self) -> Tensor | None:
        return self.inside.matrix()

    def diagonal(self) -> Tensor:
        return self.inside.diagonal()

    def inverse(self) -> Callable[[Tensor], Tensor]:
        return self.inside.inverse()
