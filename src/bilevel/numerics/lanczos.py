"""The extremes of a Hessian's spectrum from products with it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bilevel.arguments import positive_integer
from bilevel.record import Record


@dataclass(frozen=True)
class Spectrum(Record):
    """The extreme eigenvalues of a symmetric matrix H.

    Args:
        largest, smallest: the extreme Ritz values. They lie inside the true spectrum.
        largest_error, smallest_error: there is an eigenvalue of H within this distance of each.
            Zero, up to rounding, once the products span all that the start vector can reach.
            All four are NaN if the products are not finite.
        products: how many products H v were computed.

    Example:
        >>> import torch
        >>> from bilevel.theory import extreme_eigenvalues
        >>> found = extreme_eigenvalues(lambda v: 2 * v, torch.ones(5).double())
        >>> round(found.largest, 9), found.largest_error < 1e-12, found.products
        (2.0, True, 1)
    """

    largest: float
    smallest: float
    largest_error: float
    smallest_error: float
    products: int


def extreme_eigenvalues(
    product: Callable[[Tensor], Tensor], like: Tensor, steps: int = 40, seed: int = 0
) -> Spectrum:
    """Lanczos from a scattered vector, each new vector orthogonalised against all earlier ones.

    After m steps H Q = Q T + β q e_m', with T tridiagonal: for an eigenpair (θ, s) of T there
    is an eigenvalue of H within β |s_m| of θ.

    Args:
        product: v -> H v, with H symmetric.
        like: a vector with the size and dtype of v.
        steps: at most m.
        seed: selects the start vector.

    Example:
        >>> import torch
        >>> from bilevel.theory import extreme_eigenvalues
        >>> H = torch.diag(torch.tensor([1.0, 2.0, 5.0]).double())
        >>> found = extreme_eigenvalues(lambda v: H @ v, H[0])
        >>> round(found.smallest, 9), round(found.largest, 9), found.products
        (1.0, 5.0, 3)

    Reference: Golub & Van Loan, Matrix Computations, Section 10.1.
    """
    start = scattered(len(like), seed).to(like)
    basis = [start / start.norm()]
    diagonal: list[float] = []
    beside: list[float] = []
    for _ in range(min(positive_integer("steps", steps), len(like))):
        w = product(basis[-1])
        diagonal.append(float(w @ basis[-1]))
        Q = torch.stack(basis)
        for _twice in range(2):  # once leaves what rounding reintroduced
            w = w - Q.T @ (Q @ w)
        beside.append(float(w.norm()))
        rounding = torch.finfo(like.dtype).eps * max(map(abs, diagonal))
        if beside[-1] <= max(1000, 10 * math.sqrt(len(like))) * rounding:  # only noise is left
            break
        basis.append(w / beside[-1])
    if not all(map(math.isfinite, (*diagonal, *beside))):  # the point has diverged: show it
        return Spectrum(math.nan, math.nan, math.nan, math.nan, len(diagonal))
    T = torch.diag(torch.tensor(diagonal, dtype=torch.float64))
    links = torch.tensor(beside[:-1], dtype=torch.float64)
    T = T + torch.diag(links, 1) + torch.diag(links, -1)
    values, vectors = torch.linalg.eigh(T)
    errors = beside[-1] * vectors[-1].abs()
    return Spectrum(
        largest=float(values[-1]),
        smallest=float(values[0]),
        largest_error=float(errors[-1]),
        smallest_error=float(errors[0]),
        products=len(diagonal),
    )


def scattered(size: int, seed: int) -> Tensor:
    """Numbers with no pattern that a matrix could share, made without a random generator.

    The fractional parts of i²φ, with φ the golden ratio, are spread evenly (Weyl), and the
    differences between neighbours keep changing.
    """
    i = torch.arange(1, size + 1, dtype=torch.float64) + 0.5 * seed
    return (i * i * ((math.sqrt(5) - 1) / 2)).frac() - 0.5
