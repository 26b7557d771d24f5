"""Solvers of the inner problem: y near argmin g(x, ·)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum

from torch import Tensor

from bilevel.oracles.base import Oracle, Step
from bilevel.problem.sampling import Streams


class InnerStatus(StrEnum):
    """How an inner solve ended."""

    CONVERGED = "converged"
    STEP_LIMIT = "step_limit"  # success, when no tolerance was asked for
    NOT_CONVERGED = "not_converged"
    STALLED = "stalled"  # the line search found no better point


@dataclass(frozen=True)
class InnerSolution:
    """y, and how it was found. `gradient_norm` is ‖∇y g‖ there if known for free."""

    y: Tensor
    status: InnerStatus
    steps: int
    gradient_norm: float | None = None


class InnerSolver(ABC):
    """A way to minimise g(x, ·)."""

    @abstractmethod
    def solve(self, oracle: Oracle, x: Tensor, y: Tensor, streams: Streams) -> InnerSolution:
        """Minimise g(x, ·) from y."""


class GradientSteps(InnerSolver):
    """An inner solver made of plain gradient steps, which ITD can differentiate."""

    @abstractmethod
    def plan(self, oracle: Oracle, x: Tensor, y: Tensor, streams: Streams) -> list[Step]:
        """The steps that it will take from y."""

    def solve(self, oracle: Oracle, x: Tensor, y: Tensor, streams: Streams) -> InnerSolution:
        steps = self.plan(oracle, x, y, streams)
        y = oracle.descend(x, y, steps)
        return InnerSolution(y, InnerStatus.STEP_LIMIT, len(steps))
