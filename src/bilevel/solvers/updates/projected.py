"""Updates of a point that must stay in a set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from bilevel.errors import quoted
from bilevel.solvers.updates.inside import Inside


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
            raise ValueError(f"project must give {_form(point)} for one, got {_form(found)}")
        return found.detach()


def _form(found: Any) -> str:
    if not isinstance(found, Tensor):
        return repr(found)
    return f"a point of shape {tuple(found.shape)} and {found.dtype}"
