"""Updates of a point that must not run away."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bilevel.arguments import instance, positive
from bilevel.numerics.vectors import norm
from bilevel.solvers.updates.base import Look, Memory, Update


@dataclass(frozen=True)
class Ball(Update):
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

    update: Update
    radius: float = 1e6

    def __post_init__(self) -> None:
        instance("update", self.update, Update, "bilevel.updates.Descent(0.1)")
        positive("radius", self.radius)

    def init(self, point: Tensor) -> Memory:
        return self.update.init(point)

    def apply(
        self, point: Tensor, gradient: Tensor, memory: Memory, look: Look
    ) -> tuple[Tensor, Memory]:
        moved, memory = self.update.apply(point, gradient, memory, look)
        return self._project(moved), memory

    def stationarity(self, point: Tensor, gradient: Tensor) -> float:
        return norm(point - self._project(point - gradient))

    def _project(self, point: Tensor) -> Tensor:
        size = norm(point)
        # NaN is left alone: a run that diverges must see it.
        return point * (self.radius / size) if size > self.radius else point
