"""Conjugate gradients for several right-hand sides at once, in one Krylov space."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

_LOST = 1e-10  # a direction that has become this much shorter consists of rounding


def block_cg(product: Callable[[Tensor], Tensor], B: Tensor, steps: int) -> Tensor:
    """X with H X ≈ B after this many block steps from zero, one product per column and step.

    Each column is the best in the space spanned by the products of all columns, and so at least as
    good as after the same number of steps of CG on its own.

    Args:
        product: v ↦ H v, with H symmetric and positive definite.
        B: right-hand sides, one in each column.
        steps: at most N: it ends earlier if the residuals are lost in rounding.

    Example:
        >>> H = torch.diag(torch.tensor([1.0, 2.0, 3.0, 4.0])).double()
        >>> B = torch.tensor([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]]).double().T
        >>> X = block_cg(lambda v: H @ v, B, 2)  # CG needs two steps for each of the two
        >>> bool((H @ X - B).norm() < 1e-12)
        True

    Reference: O'Leary, "The block conjugate gradient algorithm and related methods", 1980.
    """
    V, HV, new = B[:, :0], B[:, :0], B
    for _ in range(steps):
        new = _new_directions(V, new)
        if not new.shape[1]:
            break
        products = torch.stack([product(column) for column in new.T], 1)
        V, HV, new = torch.cat([V, new], 1), torch.cat([HV, products], 1), products
    # CG's iterate is the solution in the space so far. Keeping all directions, which is cheap for
    # a few steps, protects them from rounding.
    small = V.T @ HV
    inside: Tensor = torch.linalg.solve_ex((small + small.T) / 2, V.T @ B).result
    return V @ inside


def _new_directions(V: Tensor, new: Tensor) -> Tensor:
    """Orthonormal columns for what is new; a column that adds nothing is left out."""
    found = V
    for column in new.T:
        size = torch.linalg.vector_norm(column)
        for _ in range(2):  # twice is enough (Parlett)
            column = column - found @ (found.T @ column)
        left = torch.linalg.vector_norm(column)
        # NaN is kept: the run must see that it diverged.
        if not bool(left <= _LOST * size):
            found = torch.cat([found, (column / left)[:, None]], 1)
    return found[:, V.shape[1] :]
