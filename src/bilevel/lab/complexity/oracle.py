"""The family's derivatives in closed form."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from bilevel.lab.complexity.family import TAIL, Family
from bilevel.lab.complexity.walls import Vector
from bilevel.oracles.points import Inner, Linear, Oracle, Outer
from bilevel.problem.sources import Rows


class FamilyOracle(Oracle):
    """What `AutogradOracle` gives for `family.problem()`, ten times faster."""

    def __init__(self, family: Family) -> None:
        self.family, self.seed = family, family.seed
        self.x_size, self.y_size = len(family.x0), len(family.y0)
        rows = None if family.noise is None else len(family.noise.h)
        self.inner_rows = self.outer_rows = rows
        self.dtype, self.device = family.x0.dtype, family.x0.device
        self._zero = torch.zeros_like(family.x0)
        self._wall, self._at = family.wall, family.at_wall
        self._lam, self._J = family.eigenvalues.numpy(), family.J.numpy()
        self._d = family.d.numpy()
        self._noises = {} if family.noise is None else family.noise.arrays()

    def outer(self, x: Tensor, y: Tensor, rows: Rows = None) -> Outer:
        return _Outer(self, x, y, rows)

    def inner(self, x: Tensor, y: Tensor, rows: Rows = None) -> Inner:
        return _Linear(self, x, y, rows)

    def linearize(self, x: Tensor, y: Tensor, rows: Rows = None) -> Linear:
        return _Linear(self, x, y, rows)

    def outer_value(self, x: Tensor, y: Tensor, rows: Rows) -> Tensor:
        value = self.family.outer(x, y)
        return value if rows is None else value + torch.from_numpy(self._noise("d", rows)) @ y

    def outer_gradient(self, y: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        here = y.numpy()
        along = float(here[0])
        gradient = math.cos(along) * self._d
        gradient[0] = -along * (1 + along * along) ** (-TAIL / 2 - 1)
        gradient[0] -= math.sin(along) * float(self._d.dot(here))
        gradient[self._at] = self._wall.outer_gradient(here[self._at])
        if rows is not None:
            gradient += self._noise("d", rows)
        return self._zero, torch.from_numpy(gradient)

    def inner_value(self, x: Tensor, y: Tensor, rows: Rows) -> Tensor:
        value = self.family.inner(x, y)
        if rows is None:
            return value
        h, j, c = (torch.from_numpy(self._noise(part, rows)) for part in "hjc")
        drive = j * (self.family.J @ x) + c
        return value + 0.5 * (self.family.eigenvalues * h * y * y).sum() - drive @ y

    def inner_gradient(self, x: Tensor, y: Tensor, rows: Rows) -> Tensor:
        here = y.numpy()
        gradient = here * self._hessian(rows)
        drive = self._J.dot(x.numpy())
        gradient -= drive
        if rows is not None:
            gradient -= self._noise("j", rows) * drive + self._noise("c", rows)
        bend = self._wall.inner_gradient(here[self._at])
        if bend is not None:
            gradient[self._at] += bend
        return torch.from_numpy(gradient)

    def diagonal(self, y: Tensor, rows: Rows) -> Tensor:
        """Of ∇²y g, which has nothing else."""
        bend = self._wall.inner_curvature(y.numpy()[self._at])
        hessian = self._hessian(rows)
        if bend is not None:
            hessian = hessian.copy()
            hessian[self._at] += bend
        return torch.from_numpy(hessian)

    def cross(self, v: Tensor, rows: Rows) -> Tensor:
        """∇x∇y g v, the same everywhere."""
        driven = v.numpy() if rows is None else v.numpy() * (1 + self._noise("j", rows))
        return torch.from_numpy(-driven.dot(self._J))

    def _hessian(self, rows: Rows) -> Vector:
        return self._lam if rows is None else self._lam * (1 + self._noise("h", rows))

    def _noise(self, part: str, rows: Tensor) -> Vector:
        """The mean over the rows; a sum over one axis is NumPy's shortest way to it."""
        chosen = self._noises[part][rows.numpy()]
        mean: Vector = chosen[0] if len(chosen) == 1 else np.add.reduce(chosen) / len(chosen)
        return mean


class _Outer(Outer):
    def __init__(self, oracle: FamilyOracle, x: Tensor, y: Tensor, rows: Rows) -> None:
        self._oracle, self._x, self._y, self._rows = oracle, x, y, rows

    def value(self) -> Tensor:
        return self._oracle.outer_value(self._x, self._y, self._rows)

    def gradient(self) -> tuple[Tensor, Tensor]:
        return self._oracle.outer_gradient(self._y, self._rows)


class _Linear(Linear):
    def __init__(self, oracle: FamilyOracle, x: Tensor, y: Tensor, rows: Rows) -> None:
        self._oracle, self._x, self._y, self._rows = oracle, x, y, rows
        self._diagonal: Tensor | None = None

    def value(self) -> Tensor:
        return self._oracle.inner_value(self._x, self._y, self._rows)

    def gradient(self) -> Tensor:
        return self._oracle.inner_gradient(self._x, self._y, self._rows)

    def gradient_x(self) -> Tensor:
        return self._oracle.cross(self._y, self._rows)  # g's only term with x is bilinear

    def hvp(self, v: Tensor) -> Tensor:
        return self.diagonal() * v

    def cross(self, v: Tensor) -> Tensor:
        return self._oracle.cross(v, self._rows)

    def diagonal(self) -> Tensor:
        if self._diagonal is None:
            self._diagonal = self._oracle.diagonal(self._y, self._rows)
        return self._diagonal

    def inverse(self) -> Callable[[Tensor], Tensor]:
        diagonal = self.diagonal()
        return lambda v: v / diagonal
