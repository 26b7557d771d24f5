"""Two small problems with known solutions, on which methods can be tried."""

from __future__ import annotations

import torch

from bilevel.problem.problem import Problem


def halves() -> Problem:
    """y*(x) = 2x is to be 1, so that x = (1/2, 1/2).

    Example:
        >>> import bilevel
        >>> bilevel.minimize(halves(), steps=20).x
        tensor([0.5000, 0.5000])
    """
    return Problem(
        outer=lambda x, y: ((y - 1) ** 2).sum(),
        inner=lambda x, y: ((y - 2 * x) ** 2).sum(),
        x0=torch.zeros(2),
        y0=torch.zeros(2),
    )


def means() -> Problem:
    """y*(x) = x + the mean of 50 rows is to be that mean, so that x = (0, 0).

    Example:
        >>> import bilevel
        >>> bool(bilevel.minimize(means(), steps=20).x.norm() < 1e-8)
        True
    """
    rows = torch.randn(50, 2, generator=torch.Generator().manual_seed(0)).double()
    return Problem(
        outer=lambda x, y, batch: ((y - batch.data) ** 2).mean(),
        inner=lambda x, y, batch: ((y - x - batch.data) ** 2).mean(),
        x0=torch.ones(2).double(),
        y0=torch.zeros(2).double(),
        outer_data=rows,
        inner_data=rows,
    )
