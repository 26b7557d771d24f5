"""Ways to estimate the hypergradient ∇Φ(x)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from torch import Tensor

from bilevel.oracles.base import Oracle
from bilevel.problem.sampling import Streams
from bilevel.solvers.inner.base import InnerSolution, InnerSolver
from bilevel.solvers.linear.base import LinearSolution


@dataclass(frozen=True)
class Estimate:
    """An estimate of ∇Φ(x), with the solves that it rests on.

    Args:
        value: the hypergradient, flat.
        inner: y and how it was found.
        linear: v and how it was found. ITD solves no system: its v is the one that its
            backward pass implies.
        measured: numbers by name that the next outer step may build on.
    """

    value: Tensor
    inner: InnerSolution
    linear: LinearSolution
    measured: dict[str, float] = field(default_factory=dict)


class Differentiation(ABC):
    """How the inner solution is differentiated."""

    @abstractmethod
    def estimate(
        self,
        oracle: Oracle,
        x: Tensor,
        y: Tensor,
        v: Tensor | None,
        inner: InnerSolver,
        streams: Streams,
    ) -> Estimate:
        """Solve the inner problem from y and the linear system from v; estimate ∇Φ(x)."""
