"""Quadratic bilevel problems: everything about them is known in closed form.

    g(x, y) = ½ y'Hy − y'(Jx + c),      f(x, y) = ½ (y − d)'F(y − d) + ½ r ‖x‖²

As a finite sum, H, c and d are the means of those of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bilevel.arguments import non_negative
from bilevel.problem.constants import Constant, Kind, Known
from bilevel.problem.model import Model
from bilevel.problem.problem import Problem
from bilevel.problem.sources import Batch


@dataclass(frozen=True)
class QuadraticForm(Model):
    """The matrices; for a finite sum, rows come first."""

    H: Tensor  # (q, q) or (rows, q, q)
    J: Tensor  # (q, p)
    c: Tensor  # (q,) or (rows, q)
    F: Tensor  # (q, q)
    d: Tensor  # (q,) or (rows, q)
    r: float

    @property
    def mean_hessian(self) -> Tensor:
        return self.H if self.H.ndim == 2 else self.H.mean(0)

    def inner(self, x: Tensor, y: Tensor, batch: Batch | None = None) -> Tensor:
        """g."""
        H, c = (self.H, self.c) if batch is None else (part.mean(0) for part in batch.data)
        return 0.5 * y @ (H @ y) - y @ (self.J @ x + c)

    def outer(self, x: Tensor, y: Tensor, batch: Batch | None = None) -> Tensor:
        """f."""
        away = y - (self.d if batch is None else batch.data)
        return 0.5 * ((away @ self.F) * away).sum(-1).mean() + 0.5 * self.r * x @ x

    def solution(self, x: Tensor) -> Tensor:
        """y*(x) = H⁻¹(Jx + c)."""
        c = self.c if self.c.ndim == 1 else self.c.mean(0)
        found: Tensor = torch.linalg.solve(self.mean_hessian, self.J @ x + c)
        return found

    def hypergradient(self, x: Tensor) -> Tensor:
        """∇Φ(x) = rx + J'H⁻¹F(y*(x) − d)."""
        d = self.d if self.d.ndim == 1 else self.d.mean(0)
        v: Tensor = torch.linalg.solve(self.mean_hessian, self.F @ (self.solution(x) - d))
        return self.r * x + self.J.T @ v

    def constants(self, x: Tensor, y: Tensor) -> Known:
        eigenvalues = torch.linalg.eigvalsh(self.mean_hessian)
        numbers = {
            "mu": float(eigenvalues[0]),
            "L_g": float(eigenvalues[-1]),
            "cross": float(torch.linalg.matrix_norm(self.J, 2)),
            "L_fx": 0.0,
            "L_fy": float(torch.linalg.matrix_norm(self.F, 2)),
            "L_xx": self.r,
            "rho": 0.0,
            "tau": 0.0,
            "tau_x": 0.0,
        }
        how = "of the matrices"
        return {name: Constant(max(v, 0.0), Kind.EXACT, how) for name, v in numbers.items()}


def quadratic_problem(
    H: Tensor, J: Tensor, c: Tensor, F: Tensor, d: Tensor, r: float = 0.0
) -> Problem:
    """A quadratic bilevel problem, from x = 0 and y = 0.

    Args:
        H: (q, q), symmetric and positive definite; or (rows, q, q).
        J: (q, p).
        c: (q,); or (rows, q) where H has rows.
        F: (q, q), symmetric.
        d: (q,); or (rows, q), the rows of f.
        r: the ridge on x.

    Example:
        >>> import torch, bilevel
        >>> I = torch.eye(2).double()
        >>> problem = bilevel.quadratic_problem(2 * I, I, I[0], I, I[1])
        >>> bilevel.solve_inner(problem, I[1]).y
        tensor([0.5000, 0.5000], dtype=torch.float64)
    """
    non_negative("r", r)
    if H.ndim != c.ndim + 1 or H.ndim not in (2, 3):
        raise ValueError(
            f"H and c must be a matrix and a vector, or stacks of them; got shapes "
            f"{tuple(H.shape)} and {tuple(c.shape)}"
        )
    for name, matrix in (("H", H), ("F", F)):
        if not torch.allclose(matrix, matrix.mT):
            raise ValueError(f"{name} must be symmetric: give ({name} + {name}.mT) / 2")
    form = QuadraticForm(H, J, c, F, d, r)
    return Problem(
        outer=form.outer,
        inner=form.inner,
        x0=torch.zeros(J.shape[1], dtype=J.dtype),
        y0=torch.zeros(J.shape[0], dtype=J.dtype),
        inner_data=None if H.ndim == 2 else (H, c),
        outer_data=None if d.ndim == 1 else d,
        model=form,
    )
