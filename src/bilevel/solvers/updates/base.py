"""What an update is: how a point (x, y, v or z) moves, given a gradient there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from torch import Tensor

from bilevel.arguments import Checked, Positive, Schedule, at, positive
from bilevel.kernels.array_code import Function
from bilevel.numerics.vectors import norm
from bilevel.oracles.points import RidgeTerm
from bilevel.schedules import Values, values

Memory = dict[str, Any]
After = tuple[Tensor, Memory]  # a step: the moved point, and what to remember


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
        rate: the learning rate that the method has found in this step, for updates that ask.
        ridge: the penalty ½ Σ c_a y_a² in g, if known.
        x: in inner steps, the outer variable, flat.
        point: in the backward pass over a step, where the step started.

    Example:
        >>> import torch
        >>> from bilevel.updates import Descent, Look
        >>> update = Descent(lambda k: 1 / (k + 1))
        >>> update.apply(torch.ones(1), torch.ones(1), {}, Look(step=3))[0]
        tensor([0.7500])
    """

    step: int = 0
    value: Callable[[], float] = _no_value
    doubt: Callable[[float], float] = lambda gradient: 0.0
    rate: float = 1.0
    ridge: Callable[[], RidgeTerm | None] = lambda: None
    x: Tensor | None = None
    point: Tensor | None = None


class Back(NamedTuple):
    """What an update's transpose makes of covectors of the moved point and the new memory.

    Args:
        point: the covector of the point that went in, except for its path through the gradient.
        gradient: that of the gradient, up to a factor.
        memory: those of the memory's tensors, by name.
        scale: the factor, such as −lr: to be applied when the vector is added.
        of_x: the covector of x, if the step depends on it other than through the gradient.
    """

    point: Tensor
    gradient: Tensor
    memory: dict[str, Tensor]
    scale: float = 1.0
    of_x: Tensor | None = None


class Update(Checked, ABC):
    """How a point moves. Pure: what it remembers goes in and comes out, and is plain data.

    The names, numbers and conventions are those of `torch.optim`, so that learning rates carry
    over. Wherever a learning rate is expected, a schedule k -> lr may be given.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> class SignDescent(bilevel.updates.Update):
        ...     def apply(self, point, gradient, memory, look):
        ...         return point - gradient.sign() / 8, memory
        >>> algorithm = bilevel.algorithms.AIDBiO(outer=SignDescent())
        >>> bilevel.minimize(halves(), algorithm, steps=4).x
        tensor([0.5000, 0.5000])
    """

    such_as = (
        "bilevel.updates.Adam(0.01), or of torch's "
        "bilevel.updates.TorchOptimizer(lambda p: torch.optim.Adam(p, 0.01))"
    )

    # Whether the move is linear in gradient and memory: then `transpose` looks at neither.
    is_linear: ClassVar[bool] = False

    # `apply` in array code, in place: (point, gradient, memory, constants, rate, t), where t counts
    # the steps from 1 and memory has a row for each vector. None if there is none.
    moves: ClassVar[Function | None] = None

    def init(self, point: Tensor) -> Memory:
        """What it remembers before the first step."""
        return {}

    @abstractmethod
    def apply(self, point: Tensor, gradient: Tensor, memory: Memory, look: Look) -> After:
        """The moved point, and what to remember."""

    def constants(self) -> tuple[float, ...]:
        """What `moves` needs besides the rates."""
        return ()

    def rates(self, memory: Memory, steps: range) -> Values:
        """The learning rates of these steps."""
        raise NotImplementedError(f"{type(self).__name__} has no array code")

    def transpose(
        self, r: Tensor, of_memory: dict[str, Tensor], gradient: Tensor, memory: Memory, look: Look
    ) -> Back:
        """The transposed derivative of `apply`, for ITD, which goes back over inner steps.

        Args:
            r: a covector of the moved point.
            of_memory: covectors of what it remembers after the step, by name; a missing one is 0.
            gradient, memory: as they went into `apply`.
            look: as it went in.
        """
        raise ValueError(
            f"{type(self).__name__} cannot be differentiated by ITD: use Descent, Momentum, "
            "Nesterov or Adam inside, or AID, which takes any inner solver"
        )

    def stationarity(self, point: Tensor, gradient: Tensor) -> float:
        """Zero where the update would stay put: the norm of the gradient, if x is unconstrained."""
        return norm(gradient)


@dataclass(frozen=True)
class Rated(Update):
    """An update with a learning rate."""

    lr: Positive | Schedule

    def rates(self, memory: Memory, steps: range) -> Values:
        return rates_of(self.lr, steps)


@dataclass(frozen=True)
class Around(Update):
    """An update that changes what goes into another, or what comes out of it."""

    update: Update

    def init(self, point: Tensor) -> Memory:
        return self.update.init(point)


def rate(lr: float | Schedule, look: Look) -> float:
    """The learning rate of this step; an invalid one is an error."""
    # The usual case first: a constant was checked when the update was made.
    return lr if type(lr) is float else positive("lr", at(lr, look.step))


def rates_of(lr: float | Schedule, steps: range, name: str = "lr") -> Values:
    """`rate` of each of these steps."""
    found = values(lr, steps)
    if not (found > 0).all() or not np.isfinite(found).all():
        first = int(np.argmin((found > 0) & np.isfinite(found)))
        positive(name, found[first].item())
    return found
