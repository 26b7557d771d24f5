"""Updates of a point that must not run away."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bilevel.arguments import positive
from bilevel.numerics.vectors import norm
from bilevel.solvers.updates.inside import Inside


@dataclass(frozen=True)
class Ball(Inside):
    """Any update, then back to the ball ‖p‖ ≤ r: a guard for v, whose norm is at most ‖∇y f‖/μ.

    Args:
        update: what moves the point.
        radius: r.

    Example:
        >>> import torch
        >>> from bilevel.updates import Ball, Descent, Look
        >>> Ball(Descent(1.0), 5.0).apply(torch.zeros(2), torch.tensor([-6.0, -8.0]), {}, Look())
        (tensor([3., 4.]), {})
    """

    radius: float = 1e6

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("radius", self.radius)

    def to_set(self, point: Tensor) -> Tensor:
        size = norm(point)
        # NaN is left alone: a run that diverges must see it.
        return point * (self.radius / size) if size > self.radius else point
