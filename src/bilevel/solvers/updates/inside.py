"""What updates of a point that stays in a convex set share."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from torch import Tensor

from bilevel.arguments import instance
from bilevel.numerics.vectors import norm
from bilevel.solvers.updates.base import Look, Memory, Update


@dataclass(frozen=True)
class Inside(Update):
    """Any update, then the nearest point of the set.

    Args:
        update: what moves the point.
    """

    update: Update

    def __post_init__(self) -> None:
        instance("update", self.update, Update, "bilevel.updates.Descent(0.1)")

    @abstractmethod
    def to_set(self, point: Tensor) -> Tensor:
        """P, the projection."""

    def init(self, point: Tensor) -> Memory:
        return self.update.init(point)

    def apply(
        self, point: Tensor, gradient: Tensor, memory: Memory, look: Look
    ) -> tuple[Tensor, Memory]:
        moved, memory = self.update.apply(point, gradient, memory, look)
        return self.to_set(moved), memory

    def stationarity(self, point: Tensor, gradient: Tensor) -> float:
        return norm(point - self.to_set(point - gradient))
