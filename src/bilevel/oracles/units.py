"""A problem in measured units of y: those in which the curvature of its inner loss is one."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from bilevel.oracles.points import Forwarding, Inner, Linear, Oracle, Outer
from bilevel.problem.sampling import Streams
from bilevel.problem.sources import Rows


class InUnits(Forwarding):
    """Any oracle, where y = origin + W u, and u is what a method sees.

    With WW' = (∇²y g)⁻¹ at the origin, the Hessian in u is the identity there: a step of 1 is
    right, and a few terms of any series suffice, whatever the units and the conditioning of g. A
    method needs no change for it. Derivatives in x stay the same, and ∇²y g v = ∇y f becomes the
    same system in u, whose solution W turns into v.

    Args:
        oracle: of the problem as it is.
        origin: the y that is u = 0.
        factor: W; None leaves the units as they are.
        after: outer steps whose random rows are skipped, so that other rows are drawn.

    Example:
        >>> import torch, bilevel
        >>> from bilevel.oracles import make
        >>> from bilevel.oracles.units import InUnits
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: (y**2).sum(), inner=lambda x, y: 50 * ((y - x) ** 2).sum(),
        ...     x0=torch.ones(1), y0=torch.zeros(1))
        >>> units = InUnits(make(problem), torch.ones(1), torch.full((1, 1), 0.1))
        >>> units.linearize(problem.x0, torch.zeros(1)).hvp(torch.ones(1))
        tensor([1.])
    """

    def __init__(
        self, oracle: Oracle, origin: Tensor, factor: Tensor | None = None, after: int = 0
    ) -> None:
        super().__init__(oracle)
        self._origin, self._factor, self._after = origin, factor, after

    def y(self, u: Tensor) -> Tensor:
        """The y that u stands for."""
        return self._origin + self.vector(u)

    def vector(self, u: Tensor) -> Tensor:
        """W u: a difference of y."""
        return u if self._factor is None else self._factor @ u

    def covector(self, gradient: Tensor) -> Tensor:
        """W' times a derivative in y: the derivative in u."""
        return gradient if self._factor is None else self._factor.T @ gradient

    def solved(self, vector: Tensor) -> Tensor:
        """W⁻¹ times a difference of y: the difference of u."""
        if self._factor is None:
            return vector
        solution: Tensor = torch.linalg.solve(self._factor, vector)
        return solution

    def outer(self, x: Tensor, y: Tensor, rows: Rows = None) -> Outer:
        return _OuterInUnits(self.oracle.outer(x, self.y(y), rows), self)

    def inner(self, x: Tensor, y: Tensor, rows: Rows = None) -> Inner:
        return _InnerInUnits(self.oracle.inner(x, self.y(y), rows), self)

    def linearize(self, x: Tensor, y: Tensor, rows: Rows = None) -> Linear:
        return _LinearInUnits(self.oracle.linearize(x, self.y(y), rows), self)

    def again(self, point: Inner, x: Tensor, rows: Rows) -> Callable[[Tensor], Linear]:
        assert isinstance(point, _InnerInUnits)
        made = self.oracle.again(point.inside, x, rows)
        return lambda u: _LinearInUnits(made(self.y(u)), self)

    # Chapters of one run must not see the same rows again.
    def streams(self, step: int) -> Streams:
        return self.oracle.streams(self._after + step)


class _OuterInUnits(Outer):
    def __init__(self, point: Outer, units: InUnits) -> None:
        self._point, self._units = point, units

    def value(self) -> Tensor:
        return self._point.value()

    def gradient(self) -> tuple[Tensor, Tensor]:
        f_x, f_y = self._point.gradient()
        return f_x, self._units.covector(f_y)


class _InnerInUnits(Inner):
    def __init__(self, point: Inner, units: InUnits) -> None:
        self.inside, self._units = point, units

    def value(self) -> Tensor:
        return self.inside.value()

    def gradient(self) -> Tensor:
        return self._units.covector(self.inside.gradient())

    def gradient_x(self) -> Tensor:
        return self.inside.gradient_x()


class _LinearInUnits(_InnerInUnits, Linear):
    inside: Linear

    def hvp(self, v: Tensor) -> Tensor:
        return self._units.covector(self.inside.hvp(self._units.vector(v)))

    # x has no units: only what goes in is turned into y's.
    def cross(self, v: Tensor) -> Tensor:
        return self.inside.cross(self._units.vector(v))

    def both(self, v: Tensor) -> tuple[Tensor, Tensor]:
        Hv, Jv = self.inside.both(self._units.vector(v))
        return self._units.covector(Hv), Jv
