"""Bilevel problems with a given κ whose Φ costs gradient descent as much as the theory allows.

Two independent numbers of x:

- along x₁ there is an endless valley: y = κx₁, and Φ = (1 + y²)^(−s/2)/s keeps falling, less and
  less steeply, so that ‖∇Φ‖² decays as a power of the steps, and no faster (`descent_order`);
- along x₂ there is a wall (see `walls`), which rules out outer steps much longer than 1/L_Φ.

The other numbers of y are bystanders: y* is 0 there, so that Φ does not know them. But f has the
term cos(y₁)⟨d, y⟩, so that ∇y f changes at every step along the whole spectrum of the Hessian, and
the linear system stays as hard as its κ.

L = 1 and μ = 1/κ. All matrices are diagonal: gradient descent, CG and the Neumann series do the
same in any orthogonal basis of y and of x, so a rotation would add rounding and nothing else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bilevel.lab.complexity.walls import Wall
from bilevel.problem.problem import Problem
from bilevel.problem.sources import Batch

TAIL = 0.1  # s
BYSTANDERS = 6
_WIDTHS = np.array([0.25, 0.25, 0.1, 0.7])  # of h, j, c, d


def descent_order(tail: float = TAIL) -> float:
    """a = (s + 2)/(2s + 2): gradient descent with the step β needs (1/β)(κ²/ε)^a / κ² steps.

    y' = y + βκ² y^(−1−s) gives y = (βκ²(s + 2)k)^(1/(s + 2)), and ‖∇Φ‖² = κ²y^(−2−2s) = ε. With
    β of order 1/L_Φ this is L_Φ κ^(2a−2) ε^−a: the theory's L_Φ/ε as s goes to 0.

    Example:
        >>> round(descent_order(0.1), 4), descent_order(0.0)
        (0.9545, 1.0)
    """
    return (tail + 2) / (2 * tail + 2)


class Noise(NamedTuple):
    """What distinguishes the rows of a finite sum; every column has mean 0.

    Row i has the Hessian diagonal λ(1 + h_i), the drive (1 + j_i)Jx + c_i, and f + ⟨d_i, y⟩.
    """

    h: Tensor  # (rows, q)
    j: Tensor  # (rows, q)
    c: Tensor  # (rows, q)
    d: Tensor  # (rows, q)


@dataclass(frozen=True)
class Family:
    """One problem of the family.

    Args:
        wall: the steep direction; its κ is that of the problem.
        eigenvalues: λ, of ∇²y g where it is not bent.
        J: (q, 2), what drives y: ∇y g = λy − Jx (and the bend of the wall).
        d: (q,), how f pulls at the bystanders.
        x0, y0: the start; y0 is y*(x0).
        noise: of the rows, or None where there are none.
        seed: what it was drawn by; also that of the rows that a run draws.
    """

    wall: Wall
    eigenvalues: Tensor
    J: Tensor
    d: Tensor
    x0: Tensor
    y0: Tensor
    noise: Noise | None
    seed: int

    @property
    def kappa(self) -> float:
        return self.wall.kappa

    @property
    def smoothness(self) -> float:
        """L_Φ, the true one: the greatest curvature along the path."""
        return max(self.wall.curvature, self.kappa**2)

    def squared_gradient(self, x: Tensor) -> float:
        """‖∇Φ(x)‖², in closed form."""
        along, across = self.gradient(*x.tolist())
        return along * along + across * across

    def gradient(self, along: float, across: float) -> tuple[float, float]:
        """∇Φ, in closed form."""
        y = self.kappa * along
        valley: float = -self.kappa * y * (1 + y * y) ** (-TAIL / 2 - 1)
        return valley, self.wall.slope(across)

    def inner(self, x: Tensor, y: Tensor, batch: Batch | None = None) -> Tensor:
        """g."""
        lam, drive = self.eigenvalues, self.J @ x
        if batch is not None:
            h, j, c = (part.mean(0) for part in batch.data)
            lam, drive = lam * (1 + h), (1 + j) * drive + c
        return 0.5 * (lam * y * y).sum() - y @ drive + self.wall.inner_value(self._on(y))

    def outer(self, x: Tensor, y: Tensor, batch: Batch | None = None) -> Tensor:
        """f."""
        valley = (1 + y[0] * y[0]) ** (-TAIL / 2) / TAIL
        value = valley + self.wall.outer_value(self._on(y)) + y[0].cos() * (self.d @ y)
        return value if batch is None else value + batch.data.mean(0) @ y

    def problem(self) -> Problem:
        """The same as two losses, for any oracle."""
        noise = self.noise
        return Problem(
            outer=self.outer,
            inner=self.inner,
            x0=self.x0,
            y0=self.y0,
            inner_data=None if noise is None else (noise.h, noise.j, noise.c),
            outer_data=None if noise is None else noise.d,
        )

    @property
    def at_wall(self) -> slice:
        """The numbers of y that belong to the wall."""
        return slice(1, 1 + len(self.wall.cross))

    def _on(self, y: Tensor) -> Tensor:
        return y[self.at_wall]


def make_family(wall: Wall, seed: int, rows: int | None = None) -> Family:
    """A problem drawn by seed: its start, its bystanders, and the noise of its rows."""
    rng = np.random.default_rng(seed)
    kappa, width = wall.kappa, len(wall.cross)
    along, across = rng.uniform(0.8, 1.2) / kappa, wall.start(rng.uniform(0.5, 1.5))
    bystanders = kappa ** -np.sort(rng.uniform(0, 1, BYSTANDERS))
    eigenvalues = np.concatenate([np.full(1 + width, 1 / kappa), bystanders])
    d, y0 = np.zeros((2, len(eigenvalues)))
    d[1 + width :] = rng.normal(size=BYSTANDERS) / math.sqrt(BYSTANDERS)
    y0[: 1 + width] = kappa * along, *wall.solution(across)
    J = np.zeros((len(eigenvalues), 2))
    J[0, 0], J[1 : 1 + width, 1] = 1.0, wall.cross
    return Family(
        wall=wall,
        eigenvalues=torch.from_numpy(eigenvalues),
        J=torch.from_numpy(J),
        d=torch.from_numpy(d),
        x0=torch.tensor([along, across], dtype=torch.float64),
        y0=torch.from_numpy(y0),
        noise=None if rows is None else _noise(rng, rows, len(d)),
        seed=seed,
    )


def _noise(rng: np.random.Generator, rows: int, size: int) -> Noise:
    """Bounded, so that no row's Hessian is more than a quarter away from the mean's."""
    drawn = rng.uniform(-1, 1, (4, rows, size)) * _WIDTHS[:, None, None]
    return Noise(*(torch.from_numpy(part - part.mean(0)) for part in drawn))
