"""The steep direction of the family: a smooth V in x that no outer step may jump over.

Gradient descent needs steps below 2/L_Φ only if some direction really has the curvature L_Φ, at a
minimum, and stays steep around it. The two walls have the greatest curvature that Lemma 2 allows,
up to a constant: κ² with a quadratic g (ρ = 0), and κ³ where the Hessian of g may turn (ρ = 1).

A wall is one number of x and those of y that depend on it. Values are torch's, for automatic
differentiation; derivatives are NumPy's, for speed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Vector: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class RoundWall:
    """g = ½μy² − xy and f = √(1 + y²), so that Φ = √(1 + κ²x²) has the curvature κ².

    Example:
        >>> RoundWall(10.0).curvature, round(RoundWall(10.0).slope(1.0), 2)
        (100.0, 9.95)
    """

    kappa: float

    @property
    def cross(self) -> list[float]:
        """How each number of y is driven by x: the column of −∇y∇x g, of norm 1."""
        return [1.0]

    def start(self, share: float) -> float:
        """x at the start; shares around 1 lie where the wall begins to be steep."""
        return share / self.kappa

    def solution(self, x: float) -> list[float]:
        """y*(x)."""
        return [self.kappa * x]

    def slope(self, x: float) -> float:
        """dΦ/dx."""
        y = self.kappa * x
        return self.kappa * y / math.sqrt(1 + y * y)

    @property
    def curvature(self) -> float:
        """d²Φ/dx² at the bottom, x = 0."""
        return self.kappa**2

    def inner_value(self, y: Tensor) -> Tensor:
        """What g has beside ½μ‖y‖² and the drive by x."""
        return y.new_zeros(())

    def inner_gradient(self, y: Vector) -> Vector | float:
        """Its gradient."""
        return 0.0

    def inner_curvature(self, y: Vector) -> Vector | float:
        """The diagonal of its Hessian, which has nothing else."""
        return 0.0

    def outer_value(self, y: Tensor) -> Tensor:
        """This direction's part of f."""
        return (1 + y * y).sqrt().sum()

    def outer_gradient(self, y: Vector) -> Vector | float:
        """∇y of it."""
        slopes: Vector = y / np.sqrt(1 + y * y)
        return slopes


_SHARE = math.sqrt(0.5)  # so that the column of ∇y∇x g has norm 1


@dataclass(frozen=True)
class BentWall:
    """g = G(y₁) + G(y₂) − x(y₁ − y₂)/√2 and f = −(y₁ + y₂)/√2, with the curvature κ³/4.

    G'' = μ + ½(y + √(y² + μ²/16)): it is μ far on the left and turns at the rate ρ ≤ 1, within a
    width of μ. So y₁*(x) = Y(x/√2) with Y = (G')⁻¹ has the slope κ for x < 0 and a small one for
    x > 0, and Φ(x) = −(Y(x/√2) + Y(−x/√2))/√2 is a V of slope κ/2, rounded within κ⁻².

    Example:
        >>> wall = BentWall(10.0)
        >>> round(wall.curvature), round(wall.slope(0.1), 1), wall.slope(0.0)
        (248, 3.7, 0.0)
    """

    kappa: float

    @property
    def cross(self) -> list[float]:
        return [_SHARE, -_SHARE]

    def start(self, share: float) -> float:
        return share / self.kappa**2

    def solution(self, x: float) -> list[float]:
        return [self._inverse(_SHARE * x), self._inverse(-_SHARE * x)]

    def slope(self, x: float) -> float:
        one, two = (1 / self._second(y) for y in self.solution(x))
        return 0.5 * (two - one)

    @property
    def curvature(self) -> float:
        third = 0.5  # G''' at 0
        return _SHARE * third / self._second(0.0) ** 3  # −Y''(0)/√2

    def inner_value(self, y: Tensor) -> Tensor:
        w = self._width
        root = (y * y + w * w).sqrt()
        cubes = (y**3 + root**3) / 3
        return 0.25 * (cubes + w * w * (y * (y / w).asinh() - root)).sum()

    def inner_gradient(self, y: Vector) -> Vector | float:
        w = self._width
        bend: Vector = y * (y + np.sqrt(y * y + w * w)) + w * w * np.arcsinh(y / w)
        return 0.25 * bend

    def inner_curvature(self, y: Vector) -> Vector | float:
        bend: Vector = y + np.sqrt(y * y + self._width**2)
        return 0.5 * bend

    def outer_value(self, y: Tensor) -> Tensor:
        return -_SHARE * y.sum()

    def outer_gradient(self, y: Vector) -> Vector | float:
        return -_SHARE

    @property
    def _width(self) -> float:
        return 0.25 / self.kappa

    def _inverse(self, r: float) -> float:
        """Y(r), where G'(Y) = r, by Newton's method from the right, as G' is convex."""
        y = r * self.kappa if r > 0 else r / self._second(0.0)
        for _ in range(100):
            step = (self._first(y) - r) / self._second(y)
            y -= step
            if abs(step) <= 1e-15 * abs(y):
                break
        return y

    def _first(self, y: float) -> float:
        w = self._width
        bend = y * (y + math.sqrt(y * y + w * w)) + w * w * math.asinh(y / w)
        return y / self.kappa + 0.25 * bend

    def _second(self, y: float) -> float:
        return 1 / self.kappa + 0.5 * (y + math.sqrt(y * y + self._width**2))


Wall = RoundWall | BentWall
