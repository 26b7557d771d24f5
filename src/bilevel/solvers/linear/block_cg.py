"""Conjugate gradients for several right-hand sides at once, in one Krylov space."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

_LOST = 1e-10  # what is left of a direction that is this much shorter than before is rounding


def block_cg(product: Callable[[Tensor], Tensor], B: Tensor, steps: int) -> Tensor:
    """X with H X ≈ B after this many block steps from zero, one product per column and step.

    Each column is the best in the space that the products of all columns span, and so at least as
    good as after as many steps of CG by itself.

    Args:
        product: v ↦ H v, with H symmetric and positive definite.
        B: right-hand sides, one in each column.
        steps: N, at most: it ends before where the residuals are lost in rounding.

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
    # CG's iterate is the solution in the space so far. With all directions kept, which for few
    # steps is cheap, rounding does not spoil them.
    small = V.T @ HV
    inside: Tensor = torch.linalg.solve_ex((small + small.T) / 2, V.T @ B).result
    return V @ inside


def _new_directions(V: Tensor, new: Tensor) -> Tensor:
    """Orthonormal columns for what is new; one that says nothing new is left out."""
    found = V
    for column in new.T:
        size = torch.linalg.vector_norm(column)
        for _ in range(2):  # twice is enough (Parlett)
            column = column - found @ (found.T @ column)
        left = torch.linalg.vector_norm(column)
        # What is not a number stays: the run is to see that it diverged.
        if not bool(left <= _LOST * size):
            found = torch.cat([found, (column / left)[:, None]], 1)
    return found[:, V.shape[1] :]
