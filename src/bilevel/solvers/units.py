"""Units of y in which the inner curvature is about one: learned, and kept up to date.

`learned` gives a factor W with WW' ≈ (∇²y g)⁻¹, for `bilevel.oracles.units.InUnits`; `rate` the
step 1/L that remains to be measured in such units. Both use a few hundred rows at most, however
many there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bilevel.numerics.lanczos import extreme_eigenvalues
from bilevel.numerics.vectors import norm
from bilevel.oracles.corrected import Sample
from bilevel.oracles.differences import outer_products
from bilevel.oracles.points import Oracle
from bilevel.oracles.units import InUnits
from bilevel.problem.sampling import Streams, first_of
from bilevel.problem.sources import Rows
from bilevel.solvers.linear.curvature import Curvature
from bilevel.solvers.linear.inner_hessian import InnerHessian
from bilevel.solvers.measured import Measured

_LEAST, _PER_Y = 256, 16  # rows, and rows per entry of y, from which the curvature is learned
_PRODUCTS = 4  # to measure it again
_MARGIN = 1.5  # batches that are not measured may have more curvature
STALE = 4.0  # units are learned again once the curvature in them is off by this factor


def learned(
    oracle: Oracle, x: Tensor, y: Tensor, known: Mapping[str, Any], streams: Streams
) -> dict[str, Any]:
    """What is known of the inner curvature (a memory of `Curvature`), learned again if stale.

    Above 1,000 unknowns nothing is learned, and there is no "factor" in it.
    """
    some = Sample(oracle, _some(oracle), None)
    if "factor" in known:
        zero = torch.zeros_like(y)
        around = InUnits(some, y, known["factor"]).linearize(x, zero)
        found = extreme_eigenvalues(around.hvp, zero, _PRODUCTS)
        if 0 < found.largest <= STALE * min(1.0, found.smallest):
            return dict(known)
    curvature = Curvature(known)
    curvature.learn(InnerHessian(some, x, y, streams), y)
    return curvature.memory


def rate(units: InUnits, x: Tensor, u: Tensor, batch: int | None, step: int) -> float:
    """1/L at a point, on random batches of this size or on all rows; at most 1, Newton's step.

    Measured on two batches at step 0, and on one at later steps.
    """
    if batch is None:
        rows, measured = [_some(units)], Measured(products=_PRODUCTS)
    else:
        rows = units.streams(step).batches("curvature", batch, 1 if step else 2)
        measured = Measured(_MARGIN, products=_PRODUCTS)
    return min(1.0, *(measured.of(units.linearize(x, u, some).hvp, u) for some in rows))


def outer_rate(units: InUnits, x: Tensor, u: Tensor, size: float) -> float:
    """A step of u along ∇f: 1/L of f there, and at most this far."""
    longest = size / (norm(units.outer(x, u).gradient()[1]) or 1.0)
    if units.is_random:  # differences of gradients mean nothing
        return longest
    product = partial(_outer_product, units, x, u)
    found = extreme_eigenvalues(product, u, _PRODUCTS)
    L = max(found.largest + found.largest_error, -found.smallest)
    return min(longest, 1 / L) if L > 0 else longest


def _outer_product(units: InUnits, x: Tensor, u: Tensor, v: Tensor) -> Tensor:
    return outer_products(units, x, u, v)[0]


def _some(oracle: Oracle) -> Rows:
    share = max(_LEAST, _PER_Y * oracle.y_size) / max(oracle.inner_rows or 0, 1)
    return first_of(oracle.seed, oracle.inner_rows, min(share, 1.0))
