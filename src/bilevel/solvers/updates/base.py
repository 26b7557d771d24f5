"""What an update is: how any point moves, x, y, v or z, given a gradient there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from bilevel.arguments import Schedule, at, positive
from bilevel.numerics.vectors import norm

Memory = dict[str, Any]


def _no_value() -> float:
    raise ValueError(
        "this update looks at the value of the outer loss, which is available for x alone: use "
        "another one, such as Descent or Adam"
    )


@dataclass(frozen=True)
class Look:
    """What an update may look at besides the point and the gradient; most never do.

    Args:
        step: which step it is, from 0: the argument of a schedule.
        value: f at the point, on all rows.
        doubt: how far f there may be from Φ, where the inner gradient is at most its argument.
    """

    step: int = 0
    value: Callable[[], float] = _no_value
    doubt: Callable[[float], float] = lambda gradient: 0.0


class Back(NamedTuple):
    """What an update's transpose makes of covectors of the moved point and the new memory.

    Args:
        point, gradient: the covectors of what went in.
        memory: those of the memory's tensors, by name.
    """

    point: Tensor
    gradient: Tensor
    memory: dict[str, Tensor]


class Update(ABC):
    """How a point moves. Pure: what it remembers goes in and comes out, and is plain data.

    The names, numbers and conventions are those of `torch.optim`, so that learning rates carry
    over. Where a learning rate is asked for, a schedule k -> lr will do as well.
    """

    def init(self, point: Tensor) -> Memory:
        """What it remembers before the first step."""
        return {}

    @abstractmethod
    def apply(
        self, point: Tensor, gradient: Tensor, memory: Memory, look: Look
    ) -> tuple[Tensor, Memory]:
        """The moved point, and what to remember."""

    def transpose(
        self, r: Tensor, of_memory: dict[str, Tensor], gradient: Tensor, memory: Memory, look: Look
    ) -> Back:
        """The transposed derivative of `apply`, for ITD, which goes back over inner steps.

        Args:
            r: a covector of the moved point.
            of_memory: covectors of what it remembers after the step, by name; none is zero.
            gradient, memory: as they went into `apply`.
            look: as it went in.
        """
        raise ValueError(
            f"{type(self).__name__} cannot be differentiated by ITD: use Descent, Momentum, "
            "Nesterov or Adam inside, or AID, which takes any inner solver"
        )

    def stationarity(self, point: Tensor, gradient: Tensor) -> float:
        """Zero where the update would stay: the norm of the gradient, where nothing binds x."""
        return norm(gradient)


def rate(lr: float | Schedule, look: Look) -> float:
    """The learning rate of this step; a wrong one is an error."""
    # The usual case first: a constant was checked when the update was made.
    return lr if type(lr) is float else positive("lr", at(lr, look.step))
