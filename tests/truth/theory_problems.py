"""Families of problems of which every constant of the assumptions is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import bilevel
from bilevel.theory import Constant, Constants, Kind

SECH2_SLOPE = 4 / (3 * 3**0.5)  # the greatest |d/dt sech² t|; |d²/dt² sech² t| is at most 2


def known(**values: float) -> Constants:
    """Constants that are given; those not named are zero."""
    names = ("mu", "L_g", "cross", "L_fx", "L_fy", "L_xx", "M", "rho", "tau", "tau_x", "sigma")
    return Constants(**{n: Constant(values.get(n, 0.0), Kind.BOUND, "given") for n in names})


def normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def spectrum_matrix(generator: torch.Generator, size: int, low: float, high: float) -> Tensor:
    """A random symmetric matrix with eigenvalues from low to high."""
    basis, _ = torch.linalg.qr(normal(generator, size, size))
    H = basis @ torch.diag(torch.linspace(low, high, size).double()) @ basis.T
    return (H + H.T) / 2


def unit(matrix: Tensor) -> Tensor:
    """The matrix over its greatest singular value."""
    return matrix / torch.linalg.matrix_norm(matrix, 2)


def quadratic(
    seed: int,
    kappa: float = 5.0,
    sizes: tuple[int, int] = (3, 5),
    rows: int | None = None,
    r: float = 0.5,
    noise: float = 0.2,
) -> bilevel.Problem:
    """H from 1 to κ, J and F of norm 1; with rows, each row's H has those bounds too."""
    (p, q), generator = sizes, torch.Generator().manual_seed(seed)
    J, F = unit(normal(generator, q, p)), spectrum_matrix(generator, q, 0.2, 1.0)
    if rows is None:
        H = spectrum_matrix(generator, q, 1.0, kappa)
        return bilevel.quadratic_problem(H, J, normal(generator, q), F, normal(generator, q), r)
    H = torch.stack([spectrum_matrix(generator, q, 1.0, kappa) for _ in range(rows)])
    c = normal(generator, q) + noise * normal(generator, rows, q)
    d = normal(generator, q) + noise * normal(generator, rows, q)
    return bilevel.quadratic_problem(H, J, c, F, d, r)


@dataclass(frozen=True)
class Bent:
    """g = ½y'Hy − y'Jx + a Σ log cosh y_i + b Σ sin(u_i'x) tanh y_i,
    f = Σ √(1 + (y_i − d_i)²) + x'Ey + ½ r‖x‖²: every constant is greater than zero.
    """

    H: Tensor
    J: Tensor
    U: Tensor
    E: Tensor
    d: Tensor
    a: float = 0.5
    b: float = 0.3
    r: float = 0.4

    def problem(self) -> bilevel.Problem:
        return bilevel.Problem(
            outer=self._outer,
            inner=self._inner,
            x0=torch.zeros(self.J.shape[1]).double(),
            y0=torch.zeros(self.J.shape[0]).double(),
        )

    def constants(self, x_norm: float) -> Constants:
        """Bounds for all y and for x up to this norm. M bounds ∇y f, the part that is used."""
        eigenvalues = torch.linalg.eigvalsh(self.H)
        size = {n: float(torch.linalg.matrix_norm(self[n], 2)) for n in ("J", "U", "E")}
        row = float(self.U.norm(dim=1).max())
        return known(
            mu=float(eigenvalues[0]) - SECH2_SLOPE * self.b,
            L_g=float(eigenvalues[-1]) + self.a + SECH2_SLOPE * self.b,
            cross=size["J"] + self.b * size["U"],
            L_fx=size["E"],
            L_fy=1.0,
            L_xx=self.r,
            M=len(self.d) ** 0.5 + size["E"] * x_norm,
            rho=SECH2_SLOPE * self.a + 2 * self.b,
            tau=SECH2_SLOPE * self.b * size["U"],
            tau_x=self.b * row * size["U"],
        )

    def __getitem__(self, name: str) -> Tensor:
        part: Tensor = getattr(self, name)
        return part

    def _inner(self, x: Tensor, y: Tensor) -> Tensor:
        bent = self.a * y.cosh().log().sum() + self.b * ((self.U @ x).sin() * y.tanh()).sum()
        return 0.5 * y @ (self.H @ y) - y @ (self.J @ x) + bent

    def _outer(self, x: Tensor, y: Tensor) -> Tensor:
        far = (1 + (y - self.d).square()).sqrt().sum()
        return far + x @ (self.E @ y) + 0.5 * self.r * x @ x


def bent(seed: int, kappa: float = 4.0, sizes: tuple[int, int] = (3, 4), **changes: Any) -> Bent:
    (p, q), generator = sizes, torch.Generator().manual_seed(seed)
    H = spectrum_matrix(generator, q, 1.0, kappa)
    J, U = unit(normal(generator, q, p)), unit(normal(generator, q, p))
    E = 0.5 * unit(normal(generator, p, q))
    return Bent(H, J, U, E, normal(generator, q), **changes)


@dataclass(frozen=True)
class Truth:
    """y*, v* and ∇Φ at x, with dense matrices."""

    y: Tensor
    v: Tensor
    gradient: Tensor


def truth(problem: bilevel.Problem, x: Tensor) -> Truth:
    y = inner_solution(problem, x)
    v = linear_solution(problem, x, y)
    outer_x = torch.autograd.functional.jacobian(lambda x: problem.outer_loss(x, y), x)
    return Truth(y, v, outer_x - cross(problem, x, y).T @ v)


def inner_solution(problem: bilevel.Problem, x: Tensor) -> Tensor:
    """y*(x), by Newton's method from y0 until rounding."""
    y, step = problem.y0, torch.full_like(problem.y0, 1.0)
    while float(step.norm()) > 1e-9:  # which squares at the step that is taken last
        gradient = torch.autograd.functional.jacobian(lambda y: problem.inner_loss(x, y), y)
        step = torch.linalg.solve(hessian(problem, x, y), gradient)
        y = y - step
    return y


def linear_solution(problem: bilevel.Problem, x: Tensor, y: Tensor) -> Tensor:
    """v with ∇²y g(x, y) v = ∇y f(x, y)."""
    return torch.linalg.solve(hessian(problem, x, y), outer_gradient(problem, x, y))


def outer_gradient(problem: bilevel.Problem, x: Tensor, y: Tensor) -> Tensor:
    """∇y f."""
    found: Tensor = torch.autograd.functional.jacobian(lambda y: problem.outer_loss(x, y), y)
    return found


def hessian(problem: bilevel.Problem, x: Tensor, y: Tensor) -> Tensor:
    """∇²y g."""
    found: Tensor = torch.autograd.functional.hessian(lambda y: problem.inner_loss(x, y), y)
    return found


def cross(problem: bilevel.Problem, x: Tensor, y: Tensor) -> Tensor:
    """∇x∇y g, with a row for each number of y."""

    def gradient(x: Tensor) -> Tensor:
        return torch.autograd.functional.jacobian(
            lambda y: problem.inner_loss(x, y), y, create_graph=True
        )

    found: Tensor = torch.autograd.functional.jacobian(gradient, x)
    return found


def size(matrix: Tensor) -> float:
    """The operator norm."""
    return float(torch.linalg.matrix_norm(matrix, 2))
