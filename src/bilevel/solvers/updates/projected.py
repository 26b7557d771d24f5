"""Updates of a point that must stay in a convex set."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from bilevel.arguments import Positive
from bilevel.errors import quoted
from bilevel.numerics.vectors import norm
from bilevel.solvers.updates.base import After, Around, Look, Memory


@dataclass(frozen=True)
class Inside(Around):
    """Any update, then the nearest point of the set.

    Args:
        update: what moves the point.
    """

    @abstractmethod
    def to_set(self, point: Tensor) -> Tensor:
        """P, the projection."""

    def apply(self, point: Tensor, gradient: Tensor, memory: Memory, look: Look) -> After:
        moved, memory = self.update.apply(point, gradient, memory, look)
        return self.to_set(moved), memory

    def stationarity(self, point: Tensor, gradient: Tensor) -> float:
        return norm(point - self.to_set(point - gradient))


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

    radius: Positive = 1e6

    def to_set(self, point: Tensor) -> Tensor:
        size = norm(point)
        # NaN is left alone: a run that diverges must see it.
        return point * (self.radius / size) if size > self.radius else point


@dataclass(frozen=True)
class Projected(Inside):
    """Any update, then the projection P onto a convex set.

    A point is stationary if x = P(x − g), so ‖x − P(x − g)‖ takes the place of ‖g‖ in the
    history and in the comparison with `tol`.

    Args:
        update: what moves the point.
        project: P, a function of the flat point, which should not modify it.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> update = bilevel.updates.Projected(
        ...     bilevel.updates.Descent(0.1), lambda x: x.clamp(0, 0.25))
        >>> algorithm = bilevel.algorithms.AIDBiO(inner_steps=20, inner_lr=0.25, outer=update)
        >>> result = bilevel.minimize(halves(), algorithm, steps=50, tol=1e-6)
        >>> result.x, str(result.status)
        (tensor([0.2500, 0.2500]), 'converged')
    """

    project: Callable[[Tensor], Tensor]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.project):
            raise TypeError(
                f"project must be a function of a flat point, got {quoted(self.project)}"
            )

    def to_set(self, point: Tensor) -> Tensor:
        # A copy, so that an in-place projection does no harm.
        found = self.project(point.clone())
        if _form(found) != _form(point):
            raise ValueError(f"project must return {_form(point)}, got {_form(found)}")
        return found.detach()


def _form(found: Any) -> str:
    if not isinstance(found, Tensor):
        return repr(found)
    return f"a point of shape {tuple(found.shape)} and {found.dtype}"
