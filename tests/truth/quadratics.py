"""Quadratic bilevel problems whose y*(x), Φ(x), ∇Φ(x) and x* are known in closed form.

    g(x, y) = ½ y'Ay − y'(Bx + c),      f(x, y) = ½‖y − t‖² + ½ρ‖x − s‖²

A has its eigenvalues between μ = 1 and L = κ. As a finite sum, A, B, c and t are the means of
those of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

import torch
from torch import Tensor

import bilevel

Kind = Literal["tensor", "dict", "tuple"]


@dataclass(frozen=True)
class Quadratic:
    """One member of the family, with its truth. All vectors here are flat."""

    A: Tensor  # (q, q) without data, (rows, q, q) as a finite sum
    B: Tensor  # (q, p) or (rows, q, p)
    c: Tensor  # (q,) or (rows, q)
    t: Tensor  # (q,) or (rows, q)
    s: Tensor  # (p,)
    rho: float
    kappa: float

    def mean(self) -> Quadratic:
        """The same problem without data; its values of f differ by a constant."""
        if self.A.ndim == 2:
            return self
        A, B, c, t = (part.mean(0) for part in (self.A, self.B, self.c, self.t))
        return Quadratic(A, B, c, t, self.s, self.rho, self.kappa)

    def inner_solution(self, x: Tensor) -> Tensor:
        """y*(x) = A⁻¹(Bx + c)."""
        m = self.mean()
        return torch.linalg.solve(m.A, m.B @ x + m.c)

    def linear_solution(self, x: Tensor) -> Tensor:
        """v*(x) = A⁻¹(y*(x) − t)."""
        m = self.mean()
        return torch.linalg.solve(m.A, self.inner_solution(x) - m.t)

    def phi(self, x: Tensor) -> Tensor:
        """Φ(x), for a problem without data."""
        distance = self.inner_solution(x) - self.t
        return 0.5 * distance @ distance + 0.5 * self.rho * (x - self.s) @ (x - self.s)

    def gradient(self, x: Tensor) -> Tensor:
        """∇Φ(x) = ρ(x − s) + B'A⁻¹(y*(x) − t)."""
        return self.rho * (x - self.s) + self.mean().B.T @ self.linear_solution(x)

    def curvature(self) -> Tensor:
        """∇²Φ = ρI + M'M with M = A⁻¹B."""
        m = self.mean()
        M = torch.linalg.solve(m.A, m.B)
        return self.rho * torch.eye(M.shape[1], dtype=M.dtype) + M.T @ M

    def solution(self) -> Tensor:
        """x*, where ∇Φ = 0."""
        return torch.linalg.solve(self.curvature(), -self.gradient(torch.zeros_like(self.s)))

    def problem(self, kind: Kind = "tensor") -> bilevel.Problem:
        """The problem as a user would state it, with x and y in this structure, from zero."""
        x0, y0 = torch.zeros_like(self.s), torch.zeros_like(self.mean().c)
        if self.A.ndim == 2:
            losses: dict[str, Any] = {
                "outer": lambda x, y: self._outer(flat(x), flat(y), self.t),
                "inner": lambda x, y: _inner(flat(x), flat(y), self.A, self.B, self.c),
            }
        else:
            losses = {
                "outer": lambda x, y, batch: self._outer(flat(x), flat(y), batch.data),
                "inner": lambda x, y, batch: _inner(
                    flat(x), flat(y), *(part.mean(0) for part in batch.data)
                ),
                "outer_data": self.t,
                "inner_data": (self.A, self.B, self.c),
            }
        return bilevel.Problem(x0=structured(x0, kind), y0=structured(y0, kind), **losses)

    def good_settings(self, algorithm: type, **changes: Any) -> dict[str, Any]:
        """What one who knows μ, L and the curvature of Φ would choose, where it applies.

        Good for any algorithm, known or not: only the arguments that it has are given to it.
        """
        bounds = torch.linalg.eigvalsh(self.curvature())
        rate = 2 / (self.kappa + 1)  # the best step for a spectrum from 1 to κ
        enough = int(8 * self.kappa)  # ((κ − 1)/(κ + 1))^(8κ) is about 1e-7
        chosen = {
            "inner_steps": enough,
            "inner_lr": rate,
            "cg_steps": enough,
            "neumann_terms": enough,
            "neumann_lr": rate,
            "outer_lr": float(2 / (bounds[0] + bounds[-1])),
            "batch": None,
            "tolerance": 1e-10,
            **changes,
        }
        known = {field.name for field in fields(algorithm)}
        return {name: value for name, value in chosen.items() if name in known}

    def _outer(self, x: Tensor, y: Tensor, t: Tensor) -> Tensor:
        to_t = 0.5 * (y - t).square().sum(-1).mean()
        return to_t + 0.5 * self.rho * (x - self.s).square().sum()


def _inner(x: Tensor, y: Tensor, A: Tensor, B: Tensor, c: Tensor) -> Tensor:
    return 0.5 * y @ (A @ y) - y @ (B @ x + c)


def quadratic(
    kappa: float = 10.0,
    sizes: tuple[int, int] = (3, 5),
    dtype: torch.dtype = torch.float64,
    rho: float = 2.0,
    seed: int = 0,
) -> Quadratic:
    """A problem without data; `sizes` are those of x and of y.

    The singular values of M = A⁻¹B = ∂y*/∂x lie between 0.7 and 1: x and y depend on each other
    strongly, but Φ is well conditioned, so that few outer steps show much.
    """
    p, q = sizes
    generator = torch.Generator().manual_seed(seed)
    A = _spd(q, kappa, generator)
    U, _, V = torch.linalg.svd(torch.randn(q, p, generator=generator).double(), full_matrices=False)
    B = A @ U @ torch.diag(torch.linspace(0.7, 1.0, min(p, q)).double()) @ V
    c, t = torch.randn(2, q, generator=generator, dtype=torch.float64)
    s = torch.randn(p, generator=generator, dtype=torch.float64)
    A, B, c, t, s = (part.to(dtype) for part in (A, B, c, t, s))
    return Quadratic(A, B, c, t, s, rho, kappa)


def noisy_sum(
    rows: int = 40, noise: float = 0.3, kappa: float = 3.0, sizes: tuple[int, int] = (3, 5)
) -> Quadratic:
    """A finite sum whose rows differ everywhere: the noise stays at the solution."""
    mean = quadratic(kappa, sizes)
    generator = torch.Generator().manual_seed(1)

    def spread(part: Tensor) -> Tensor:
        deviation = torch.randn(rows, *part.shape, generator=generator, dtype=torch.float64)
        return part + noise * (deviation - deviation.mean(0))

    # The spectra of the rows' Hessians stay those of `mean`, each in a basis of its own,
    # around a mean that has other eigenvectors but bounds no wider.
    A = torch.stack([_spd(sizes[1], kappa, generator) for _ in range(rows)])
    return Quadratic(A, spread(mean.B), spread(mean.c), spread(mean.t), mean.s, mean.rho, kappa)


def interpolating_sum(
    rows: int = 40, kappa: float = 3.0, sizes: tuple[int, int] = (3, 5)
) -> Quadratic:
    """A finite sum whose rows share y*(x) for each x and agree on x*: the noise vanishes there.

    B_i = A_i M and c_i = A_i m give y*(x) = Mx + m on each row, and t = y*(s) gives x* = s with
    v* = 0. So even single samples reach x* with constant steps.
    """
    mean = quadratic(kappa, sizes)
    generator = torch.Generator().manual_seed(1)
    A = torch.stack([_spd(sizes[1], kappa, generator) for _ in range(rows)])
    M, m = torch.linalg.solve(mean.A, mean.B), torch.linalg.solve(mean.A, mean.c)
    t = (M @ mean.s + m).expand(rows, -1)
    return Quadratic(A, A @ M, A @ m, t, mean.s, mean.rho, kappa)


def structured(vector: Tensor, kind: Kind) -> Any:
    """A flat vector as a tensor, or cut in two as a dict or a tuple, one part a matrix."""
    first, rest = vector[:1], vector[1:]
    return {
        "tensor": vector,
        "dict": {"first": first.reshape(1, 1), "rest": rest},
        "tuple": (first.reshape(1, 1), rest),
    }[kind]


def flat(value: Any) -> Tensor:
    """The inverse of `structured`."""
    if isinstance(value, Tensor):
        return value
    parts = value.values() if isinstance(value, dict) else value
    return torch.cat([part.reshape(-1) for part in parts])


def _spd(size: int, kappa: float, generator: torch.Generator) -> Tensor:
    """A random matrix with eigenvalues from 1 to κ."""
    basis, _ = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64))
    spectrum = kappa ** torch.linspace(0, 1, size, dtype=torch.float64)
    return basis @ torch.diag(spectrum) @ basis.T
