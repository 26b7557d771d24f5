"""Ways to estimate the hypergradient ∇Φ(x)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from torch import Tensor

from bilevel.arguments import Checked
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import Cost
from bilevel.problem.sampling import Streams
from bilevel.solvers.inner.base import InnerSolution, InnerSolver
from bilevel.solvers.linear.base import LinearSolution

_NOTHING: Mapping[str, Any] = {}


class Stand(NamedTuple):
    """Where an estimate starts from.

    Args:
        x, y: the point.
        v: where the linear solve starts; None means zero.
        memory: what the last inner solve remembered.
        measured: numbers found by earlier estimates, by name.
    """

    x: Tensor
    y: Tensor
    v: Tensor | None = None
    memory: Mapping[str, Any] = _NOTHING
    measured: Mapping[str, float] = _NOTHING

    def solve(self, inner: InnerSolver, oracle: Oracle, streams: Streams) -> InnerSolution:
        """Solve the inner problem, starting here."""
        # A copy: the memory belongs to a state, which no solve may change.
        return inner.go_on(oracle, self.x, self.y, streams, dict(self.memory))


@dataclass(frozen=True)
class Estimate:
    """An estimate of ∇Φ(x), with the solves it rests on.

    Args:
        value: the hypergradient, flat.
        inner: y and how it was found.
        linear: v and how it was found. ITD solves no system: its v is the one implied by its
            backward pass.
        measured: numbers on which the next outer step may build, by name.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> problem = halves()
        >>> stand = bilevel.hypergradients.Stand(problem.x0, problem.y0)
        >>> oracle = bilevel.oracles.make(problem)
        >>> newton = bilevel.inner.NewtonCG(1e-6)
        >>> found = bilevel.AID().estimate(oracle, stand, newton, oracle.streams(0))
        >>> found.value, found.linear.v
        (tensor([-4., -4.]), tensor([-1., -1.]))
    """

    value: Tensor
    inner: InnerSolution
    linear: LinearSolution
    measured: dict[str, float] = field(default_factory=dict)


class Differentiation(Checked, ABC):
    """How the inner solution is differentiated."""

    such_as = "bilevel.AID(bilevel.linear.CG(10))"

    @abstractmethod
    def estimate(
        self, oracle: Oracle, stand: Stand, inner: InnerSolver, streams: Streams
    ) -> Estimate:
        """Solve the inner problem and the linear system from the given start; estimate ∇Φ(x)."""

    @abstractmethod
    def price(self, inner: InnerSolver, warm: bool) -> Cost:
        """What an estimate costs, with the linear solve from the last v (warm) or from zero."""

    # The inner solvers that it can differentiate, and what it says to any other, named {}.
    takes: ClassVar[Any] = object
    refusal: ClassVar[str] = "{}"

    def check(self, inner: InnerSolver) -> None:
        """Raise if it cannot differentiate what this solver returns."""
        if not isinstance(inner, self.takes):
            raise ValueError(self.refusal.format(type(inner).__name__))

    @property
    def samples(self) -> bool:
        """Whether it draws its own batches, so that its answer is noisy."""
        return getattr(self, "batch", None) is not None
