"""Solvers of the inner problem: y near argmin g(x, ·)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from torch import Tensor

from bilevel.arguments import Checked
from bilevel.oracles.plans import Descend, Step, do
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import Cost
from bilevel.problem.sampling import Streams


class InnerStatus(StrEnum):
    """How an inner solve ended."""

    CONVERGED = "converged"
    STEP_LIMIT = "step_limit"  # success, when no tolerance was asked for
    NOT_CONVERGED = "not_converged"
    STALLED = "stalled"  # the line search found no better point


@dataclass(frozen=True)
class InnerSolution:
    """y, and how it was found.

    Args:
        y: the approximate solution.
        status: how the solve ended.
        steps: how many were taken.
        gradient_norm: ‖∇y g‖ there, if known for free.
        memory: what the next outer step's solve continues with: plain data, kept in checkpoints.
        pairs: a quasi-Newton method's final steps and differences of gradients, in rows, newest
            last: what it knows of the Hessian.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> problem = halves()
        >>> oracle = bilevel.oracles.make(problem)
        >>> newton = bilevel.inner.NewtonCG(1e-6)
        >>> found = newton.solve(oracle, problem.x0 + 1, problem.y0, oracle.streams(0))
        >>> found.y, str(found.status)
        (tensor([2., 2.]), 'converged')
    """

    y: Tensor
    status: InnerStatus = InnerStatus.STEP_LIMIT
    steps: int = 0
    gradient_norm: float | None = None
    memory: dict[str, Any] = field(default_factory=dict)
    pairs: tuple[Tensor, Tensor] | None = None


class InnerSolver(Checked, ABC):
    """A way to minimise g(x, ·).

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> class Formula(bilevel.inner.InnerSolver):
        ...     def solve(self, oracle, x, y, streams):
        ...         ended = bilevel.inner.InnerStatus.CONVERGED
        ...         return bilevel.inner.InnerSolution(2 * x, ended, steps=0)
        >>> bilevel.minimize(halves(), bilevel.algorithms.AIDBiO(inner=Formula()), steps=20).x
        tensor([0.5000, 0.5000])
    """

    such_as = "bilevel.inner.LBFGS(tol=1e-6)"

    @abstractmethod
    def solve(self, oracle: Oracle, x: Tensor, y: Tensor, streams: Streams) -> InnerSolution:
        """Minimise g(x, ·) from y."""

    def go_on(
        self, oracle: Oracle, x: Tensor, y: Tensor, streams: Streams, memory: dict[str, Any]
    ) -> InnerSolution:
        """Solve with what the last outer step's solve remembered; most remember nothing."""
        return self.solve(oracle, x, y, streams)

    @property
    def samples(self) -> bool:
        """Whether it draws batches, so that its answer is noisy."""
        return getattr(self, "batch", None) is not None

    def price(self) -> Cost:
        """What a solve costs; None if that depends on a tolerance or on chance."""
        return Cost(gc_g=None, hv=None)


class GradientSteps(InnerSolver):
    """An inner solver made of plain gradient steps: a plan, which an oracle may speed up.

    Example:
        >>> import bilevel
        >>> isinstance(bilevel.inner.GradientDescent(5, 0.1), bilevel.inner.GradientSteps)
        True
        >>> isinstance(bilevel.inner.NewtonCG(1e-6), bilevel.inner.GradientSteps)
        False
    """

    @abstractmethod
    def plan(self, oracle: Oracle, x: Tensor, y: Tensor, streams: Streams) -> list[Step]:
        """The steps it will take from y."""

    def solve(self, oracle: Oracle, x: Tensor, y: Tensor, streams: Streams) -> InnerSolution:
        steps = self.plan(oracle, x, y, streams)
        return InnerSolution(do(Descend(x, y, steps), oracle), steps=len(steps))
