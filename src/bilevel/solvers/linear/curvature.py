"""A preconditioner that follows x: the oracle's, or H itself once CG has proved slow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from bilevel.numerics.vectors import norm
from bilevel.solvers.linear.base import Hessian
from bilevel.solvers.linear.cg import Apply, if_known

_DENSE = 1000  # up to this many unknowns H may be built and factorised
_PATIENCE = 2  # CG steps per unknown, about what building H costs
_FREE = 3  # steps of a solve that no preconditioner would save
_TINY = 1e-13  # eigenvalues below this fraction of the largest count as zero, and are raised to it
_ROUNDED = 8  # times the precision, if that is more
_STILL = 10.0  # times as much curvature, and a direction is no longer flat
_INSIDE = 1e-6  # the fraction of b that may lie along flat directions through rounding


class Curvature:
    """What the solves of a run learn about H, for `CG(preconditioner=...)`.

    It starts with none, or for more than 1,000 unknowns with the oracle's own approximate inverse.
    Once CG has taken 2q steps in all for q unknowns, H is built from q products with unit vectors,
    scaled to a unit diagonal and factorised. It is then used at other x too, until CG has again
    wasted 2q steps, or a direction in which H was flat has become curved. Along such directions
    it is zero: CG leaves them as they are, instead of dividing rounding by rounding.

    Args:
        memory: that of an earlier one; `memory` returns it as plain data.
    """

    def __init__(self, memory: Mapping[str, Any] | None = None) -> None:
        kept = memory or {}
        self._factor: Tensor | None = kept.get("factor")
        self._flat: Tensor | None = kept.get("flat")
        self._is_current = False  # "flat", at this x
        self._slow: float = kept.get("slow", 0.0)
        self._learned = False  # at once, in the solves at this x

    @property
    def memory(self) -> dict[str, Any]:
        known = {} if self._factor is None else {"factor": self._factor, "flat": self._flat}
        return {**known, "slow": self._slow}

    def __call__(self, hessian: Hessian) -> Apply:
        steps = 0

        # CG applies it once per step, so this counts the steps of a solve.
        def apply(r: Tensor) -> Tensor:
            nonlocal steps
            steps += 1
            slow = self._slow >= _PATIENCE * hessian.size
            if steps == 1 and (slow or not self._holds(hessian)):
                self._build(hessian, r)
            if self._factor is None:
                self._slow += 1
                return plain(r)
            self._slow += steps > _FREE
            along = self._factor.T @ r
            along[: self._flats] = 0
            return self._factor @ along

        # A small system learns H itself, which is the same on any number of processes; an
        # approximate inverse would be for each process's own rows.
        small = hessian.size <= _DENSE
        plain: Apply = (lambda r: r) if small else if_known(hessian)
        return apply

    def learn(self, hessian: Hessian, like: Tensor) -> bool:
        """Build H now, unless it is too large or was built recently; returns whether it was."""
        if self._learned and self._slow < hessian.size:
            return False
        self._learned = True
        return self._build(hessian, like)

    @property
    def knows_flats(self) -> bool:
        """Whether H, when it was built, had directions without curvature."""
        return self._flats > 0

    def start(self, v0: Tensor | None) -> Tensor | None:
        """Where to start from: where H is flat, an earlier solution may be rounding, of any size.

        From zero a solve takes few steps, as H is known.
        """
        return None if self.knows_flats else v0

    @property
    def _flats(self) -> int:
        """How many of the factor's columns, which are the first, belong to flat directions."""
        return 0 if self._flat is None else len(self._flat)

    def _holds(self, hessian: Hessian) -> bool:
        """Whether directions that were flat at another x still are."""
        if self._flats and not self._is_current:
            assert self._factor is not None
            columns = self._factor[:, : self._flats].T
            curvatures = [abs(float(w @ hessian.product(w))) for w in columns]
            self._is_current = max(curvatures) <= _STILL
            return self._is_current
        return True

    def is_unsolvable(self, b: Tensor) -> bool:
        """Whether b has a component along directions in which H, when built, had no curvature."""
        if self._flat is None:
            return False
        return norm(self._flat @ b) > _INSIDE * norm(b)

    def error(self, residual: Tensor, b: Tensor) -> float:
        """The relative error of a solution of H v = b in the energy norm, from its residual.

        Infinite if H is not known. ‖b − Hv‖ itself may be nothing but rounding in one stiff entry.
        """
        if self._factor is None:
            return math.inf
        curved = self._factor[:, self._flats :].T
        return norm(curved @ residual) / (norm(curved @ b) or 1.0)

    def _build(self, hessian: Hessian, like: Tensor) -> bool:
        self._slow = 0.0
        if hessian.size > _DENSE:
            return False
        H = hessian.matrix(like)
        if H.dtype.itemsize < 4:  # there is no eigh in half precision
            H = H.float()
        if not bool(H.isfinite().all()):
            return False
        # Scaled to a unit diagonal: otherwise a penalty of 1e14 would hide a curvature of 1e-3.
        size = H.diagonal().abs()
        least = float(size.max()) * torch.finfo(H.dtype).tiny ** 0.75  # only to divide by
        scale = size.clamp(min=least or 1.0).rsqrt()
        values, vectors = torch.linalg.eigh(scale[:, None] * (H + H.T) / 2 * scale)
        # Those of the least curvature first.
        order = values.abs().argsort(stable=True)
        values, vectors = values[order], vectors[:, order]
        tiny = max(_TINY, _ROUNDED * torch.finfo(H.dtype).eps)
        least = float(values.abs().max()) * tiny or 1.0
        directions = scale[:, None] * vectors
        # WW' ≈ H⁻¹; the signs of H's eigenvalues are dropped, as a preconditioner must be positive.
        self._factor = (directions * values.abs().clamp(min=least).rsqrt()).to(like.dtype)
        self._flat = (directions[:, values.abs() <= least].T / scale.max()).to(like.dtype)
        self._is_current = True
        return True
