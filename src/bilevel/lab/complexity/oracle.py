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
from bilevel.problem.sources import Batch, Rows, Source


class FamilyOracle(Oracle):
    """What `AutogradOracle` gives for `family.problem()`, ten times faster."""

    def __init__(self, family: Family) -> None:
        self.family, self.seed = family, family.seed
        self.problem, noise = family.problem(), family.noise
        self.x_size, self.y_size = len(family.x0), len(family.y0)
        self.inner_rows = self.outer_rows = None if noise is None else len(noise.h)
        self.dtype, self.device = family.x0.dtype, family.x0.device
        self.J, self.d = family.J.numpy(), family.d.numpy()
        self._eigenvalues = family.eigenvalues.numpy()
        self._noise = {} if noise is None else {k: v.numpy() for k, v in noise._asdict().items()}

    def outer(self, x: Tensor, y: Tensor, rows: Rows = None) -> Outer:
        return _Outer(self, x, y, rows)

    def inner(self, x: Tensor, y: Tensor, rows: Rows = None) -> Inner:
        return _Linear(self, x, y, rows)

    def linearize(self, x: Tensor, y: Tensor, rows: Rows = None) -> Linear:
        return _Linear(self, x, y, rows)

    def noise(self, part: str, rows: Tensor) -> Vector:
        """The mean over the rows; a sum over one axis is NumPy's shortest way to it."""
        chosen = self._noise[part][rows.numpy()]
        mean: Vector = chosen[0] if len(chosen) == 1 else np.add.reduce(chosen) / len(chosen)
        return mean

    def hessian(self, rows: Rows) -> Vector:
        """The diagonal of ∇²y g, which has nothing else, without the wall's bend."""
        lam = self._eigenvalues
        return lam if rows is None else lam * (1 + self.noise("h", rows))


class _Outer(Outer):
    def __init__(self, oracle: FamilyOracle, x: Tensor, y: Tensor, rows: Rows) -> None:
        self._oracle, self._x, self._y, self._rows = oracle, x, y, rows

    def value(self) -> Tensor:
        oracle = self._oracle
        return oracle.family.outer(self._x, self._y, _batch(oracle.problem.outer_data, self._rows))

    def gradient(self) -> tuple[Tensor, Tensor]:
        oracle, here = self._oracle, self._y.numpy()
        at, along = oracle.family.at_wall, float(here[0])
        gradient = math.cos(along) * oracle.d
        gradient[0] = -along * (1 + along * along) ** (-TAIL / 2 - 1)
        gradient[0] -= math.sin(along) * float(oracle.d.dot(here))
        gradient[at] = oracle.family.wall.outer_gradient(here[at])
        if self._rows is not None:
            gradient += oracle.noise("d", self._rows)
        return torch.zeros_like(self._x), torch.from_numpy(gradient)


class _Linear(Linear):
    def __init__(self, oracle: FamilyOracle, x: Tensor, y: Tensor, rows: Rows) -> None:
        self._oracle, self._x, self._y, self._rows = oracle, x, y, rows
        self._diagonal: Tensor | None = None

    def value(self) -> Tensor:
        oracle = self._oracle
        return oracle.family.inner(self._x, self._y, _batch(oracle.problem.inner_data, self._rows))

    def gradient(self) -> Tensor:
        oracle, here, rows = self._oracle, self._y.numpy(), self._rows
        drive, at = oracle.J.dot(self._x.numpy()), oracle.family.at_wall
        gradient = here * oracle.hessian(rows)
        gradient -= drive
        if rows is not None:
            gradient -= oracle.noise("j", rows) * drive + oracle.noise("c", rows)
        gradient[at] += oracle.family.wall.inner_gradient(here[at])
        return torch.from_numpy(gradient)

    def gradient_x(self) -> Tensor:
        return self.cross(self._y)  # g's only term with x is bilinear

    def hvp(self, v: Tensor) -> Tensor:
        return self.diagonal() * v

    def cross(self, v: Tensor) -> Tensor:
        """The same at every point."""
        oracle, rows = self._oracle, self._rows
        driven = v.numpy() if rows is None else v.numpy() * (1 + oracle.noise("j", rows))
        return torch.from_numpy(-driven.dot(oracle.J))

    def diagonal(self) -> Tensor:
        if self._diagonal is None:
            at = self._oracle.family.at_wall
            diagonal = self._oracle.hessian(self._rows).copy()
            diagonal[at] += self._oracle.family.wall.inner_curvature(self._y.numpy()[at])
            self._diagonal = torch.from_numpy(diagonal)
        return self._diagonal

    def inverse(self) -> Callable[[Tensor], Tensor]:
        diagonal = self.diagonal()
        return lambda v: v / diagonal


def _batch(data: Source | None, rows: Rows) -> Batch | None:
    return None if data is None or rows is None else data.batch(rows)
