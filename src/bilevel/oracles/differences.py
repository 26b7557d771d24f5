"""Products with second derivatives by differences of gradients.

For f, whose second derivatives the waist does not offer, and for losses that can be differentiated
only once.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from bilevel.errors import UserError
from bilevel.numerics.vectors import norm
from bilevel.oracles.points import Forwarding, Inner, Linear, Oracle
from bilevel.problem.sources import Rows

Gradients = Callable[[Tensor], tuple[Tensor, ...]]


def along(gradients: Gradients, point: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    """The derivatives of gradients along v: central differences, exact for quadratic losses.

    The step ε = ∛eps (1 + ‖point‖)/‖v‖ balances rounding and curvature: about ten digits are right
    in double precision, and five in single.

    Example:
        >>> y = torch.tensor([1.0, 2.0], dtype=torch.float64)
        >>> along(lambda y: (y**3,), y, torch.ones(2, dtype=torch.float64))[0].round(decimals=6)
        tensor([ 3., 12.], dtype=torch.float64)
    """
    # For v = 0 both sides are the same, and the difference is exactly zero, at the same price.
    size = norm(v) or 1.0
    step = torch.finfo(point.dtype).eps ** (1 / 3) * (1 + norm(point)) / size
    plus, minus = gradients(point.add(v, alpha=step)), gradients(point.sub(v, alpha=step))
    return tuple((a - b) / (2 * step) for a, b in zip(plus, minus, strict=True))


def outer_products(
    oracle: Oracle, x: Tensor, y: Tensor, v: Tensor, rows: Rows = None
) -> tuple[Tensor, Tensor]:
    """(∇²y f v, ∇x∇y f v), the second a covector, for the price of two gradients of f."""
    refuse_draws(oracle)
    f_x, f_y = along(lambda there: oracle.outer(x, there, rows).gradient(), y, v)
    return f_y, f_x


def refuse_draws(oracle: Oracle) -> None:
    """Raise if two calls differ by more than the point."""
    # With independent masks, two gradients differ by far more than the step between them explains.
    if oracle.is_random or oracle.is_stream:
        raise UserError(
            "the losses draw random numbers, as dropout does, or read a stream, and differences "
            "of their gradients mean nothing: call .eval() on the modules and give the data as "
            "tensors, or use a method with exact products"
        )


class Differenced(Forwarding):
    """An oracle whose Hessian and cross products are differences of gradients of g.

    For inner losses that cannot be differentiated twice. What is counted is gradients.
    Both sides of a difference use the same rows and the same draws.
    """

    @property
    def linear_bytes(self) -> int | None:
        return None  # there is no graph to keep

    def linearize(self, x: Tensor, y: Tensor, rows: Rows = None) -> Linear:
        at = alike(self.oracle, self.oracle.inner(x, y, rows), x, rows)
        return _DifferencedLinear(at, y)

    def again(self, point: Inner, x: Tensor, rows: Rows) -> Callable[[Tensor], Linear]:
        return lambda y: _DifferencedLinear(alike(self.oracle, point, x, rows), y)


def alike(oracle: Oracle, point: Inner, x: Tensor, rows: Rows) -> Callable[[Tensor], Inner]:
    """A function that makes the same point at any y: same x, same rows, same draws."""
    if oracle.is_random or oracle.is_stream:
        return oracle.again(point, x, rows)
    return lambda y: oracle.inner(x, y, rows)


class _DifferencedLinear(Linear):
    def __init__(self, at: Callable[[Tensor], Inner], y: Tensor) -> None:
        self._at, self._y = at, y

    def value(self) -> Tensor:
        return self._at(self._y).value()

    def gradient(self) -> Tensor:
        return self._at(self._y).gradient()

    def gradient_x(self) -> Tensor:
        return self._at(self._y).gradient_x()

    def hvp(self, v: Tensor) -> Tensor:
        return along(lambda y: (self._at(y).gradient(),), self._y, v)[0]

    def cross(self, v: Tensor) -> Tensor:
        return along(lambda y: (self._at(y).gradient_x(),), self._y, v)[0]
