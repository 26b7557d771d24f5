"""Algorithm 3 many times over, on rows whose Hessians are known: its bias, variance and error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
_SIZE = 8


@dataclass(frozen=True)
class RowSystem:
    """Rows with ∇²y G_i = μI + (1 − μ) a_i a_iᵀ, ‖a_i‖ ≤ 1, and ∇y F_i = b_i: L = 1 for each row.

    Args:
        a: (rows, q).
        b: (rows, q), of norm at most M = 1.
        mu: μ = 1/κ.
    """

    a: Vector
    b: Vector
    mu: float

    @staticmethod
    def drawn(kappa: float, seed: int, rows: int = 2000) -> RowSystem:
        """A system of this κ; the a_i live mostly in a few directions, as features do."""
        rng = np.random.default_rng(seed)
        scales = np.geomspace(1.0, 0.05, _SIZE)
        a = rng.normal(size=(rows, _SIZE)) * scales
        a /= np.linalg.norm(a, axis=1, keepdims=True)
        b = rng.normal(size=(rows, _SIZE)) + 2 * rng.normal(size=_SIZE)
        b /= np.linalg.norm(b, axis=1).max()
        return RowSystem(a, b, 1 / kappa)

    @property
    def hessian(self) -> Vector:
        outer: Vector = self.a.T @ self.a / len(self.a)
        return self.mu * np.eye(_SIZE) + (1 - self.mu) * outer

    @property
    def gradient(self) -> Vector:
        mean: Vector = self.b.mean(0)
        return mean

    @property
    def solution(self) -> Vector:
        return np.asarray(np.linalg.solve(self.hessian, self.gradient), np.float64)

    def expectation(self, terms: int, eta: float) -> Vector:
        """E v_Q = η Σ_{q=0..Q} (I − ηH)^q b, because the batches are independent."""
        power, total = self.gradient, self.gradient.copy()
        for _ in range(terms):
            power = power - eta * self.hessian @ power
            total = total + power
        return eta * total

    def estimates(
        self, sizes: Sequence[int], eta: float, outer: int | None, draws: int, seed: int
    ) -> Vector:
        """v_Q by Algorithm 3, `draws` times: |B_Q|, ..., |B_1| rows, and |D_F| = outer (all: None).

        Line 6: r_{i−1} = r_i − η ∇²y G(B_i) r_i from r_Q = ∇y F(D_F); line 9: v_Q = η Σ r_i.
        """
        rng = np.random.default_rng(seed)
        rows = len(self.a)
        if outer is None:
            r = np.tile(self.gradient, (draws, 1))
        else:
            r = self.b[rng.integers(rows, size=(draws, outer))].mean(1)
        total = r.copy()
        for size in sizes:
            batch = self.a[rng.integers(rows, size=(draws, size))]  # (draws, size, q)
            seen = np.einsum("dsq,dq->ds", batch, r)
            product = self.mu * r + (1 - self.mu) * np.einsum("ds,dsq->dq", seen, batch) / size
            r = r - eta * product
            total += r
        return eta * total


def variance(estimates: Vector) -> float:
    """E‖v − E v‖²."""
    return float(estimates.var(0, ddof=1).sum())
