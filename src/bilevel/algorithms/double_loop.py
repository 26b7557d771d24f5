"""The loop that every algorithm is a setting of: inner solve, hypergradient, outer step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor

from bilevel.algorithms.state import State
from bilevel.arguments import Schedule, at, instance, positive
from bilevel.hypergradients.base import Differentiation, Estimate
from bilevel.hypergradients.parts import estimate_in_parts
from bilevel.hypergradients.starts import GivenStart, Start
from bilevel.numerics.large_pages import copy_of
from bilevel.oracles.base import Oracle
from bilevel.oracles.shared_batch import at_step, parts_of_step
from bilevel.solvers.inner.base import InnerSolver
from bilevel.solvers.updates.outer import MeasuredDescent, OptimizerFactory, OuterStep, outer_step


@dataclass(frozen=True, kw_only=True)
class DoubleLoop(ABC):
    """x_{k+1} = x_k − β ∇̂Φ(x_k), where y follows by an inner solver and ∇̂Φ by AID or ITD.

    A method says which inner solver and which differentiation it uses at outer step k; the
    loop below is the same for all (the paper, Algorithm 1, lines 3 to 8).

    Args:
        outer_lr: β, or a schedule k -> β_k. None leaves it to the optimiser (0.1 for "sgd",
            0.01 for "adam", its own for any other).
        outer_optimizer: "auto", "sgd", "adam", or a function that makes any torch optimiser from
            a list of parameters. "auto" is "sgd" if outer_lr is given, and else finds its steps
            by itself.
        warm_start: start y, and v where the method says so, from the last outer step's.
    """

    outer_lr: float | Schedule | None = None
    outer_optimizer: str | OptimizerFactory = "auto"
    warm_start: bool = True

    def __post_init__(self) -> None:
        # Building the parts of the first step checks every argument.
        instance("inner", self.inner_solver(0), InnerSolver, "bilevel.inner.LBFGS(tol=1e-6)")
        instance("warm_start", self.warm_start, bool, "True or False")
        self.differentiation(0)
        self.outer(0)

    @abstractmethod
    def inner_solver(self, k: int) -> InnerSolver:
        """How y is found at outer step k."""

    @abstractmethod
    def differentiation(self, k: int) -> Differentiation:
        """How the hypergradient is estimated at outer step k."""

    @abstractmethod
    def cost(self, k: int) -> dict[str, int]:
        """The stated cost of outer step k in calls: those of gc_f, gc_g, jv, hv that are fixed."""

    def starts_v(self) -> bool:
        """Whether the linear solve starts from the last v."""
        return False

    def start(self) -> Start:
        """Where the inner steps start."""
        return GivenStart()

    def outer(self, k: int) -> OuterStep:
        """How x moves at outer step k."""
        lr = at(self.outer_lr, k)
        if lr is None and self.outer_optimizer == "auto":
            return self.own_outer(k)
        return outer_step(self.outer_optimizer, None if lr is None else positive("outer_lr", lr))

    def own_outer(self, k: int) -> OuterStep:
        """How x moves if the user says nothing about it."""
        return MeasuredDescent()

    def settled(self, oracle: Oracle, state: State) -> DoubleLoop:
        """The same with every "auto" that must be a number before the step as that number."""
        return self

    def init(self, oracle: Oracle, x0: Tensor, y0: Tensor) -> State:
        """The state before the first step, from flat x0 and y0."""
        y = copy_of(y0)  # one for both: no step writes into a state
        return State(step=0, x=copy_of(x0), y=y, y0=y)

    def step(self, oracle: Oracle, state: State) -> State:
        """One outer step."""
        return self.settled(oracle, state)._step(oracle, state)

    def _step(self, oracle: Oracle, state: State) -> State:
        k = state.step
        y = self.start().point(oracle, state.x, state.y if self.warm_start else state.y0)
        v = state.v if self.warm_start and self.starts_v() else None
        method, parts = self.differentiation(k), parts_of_step(oracle, k)
        estimate = estimate_in_parts(method, parts, state.x, y, v, self.inner_solver(k), k)
        seen = at_step(oracle, k)
        x, memory = self.outer(k).apply(seen, state.x, estimate, state.memory)
        return State(
            step=k + 1,
            x=x,
            y=estimate.inner.y,
            y0=state.y0,
            v=estimate.linear.v,
            hypergradient=estimate.value,
            memory=memory,
            measured={**state.measured, **estimate.measured},
            report=_report(estimate),
        )


def _report(estimate: Estimate) -> dict[str, str | int | float | None]:
    return {
        "inner_status": str(estimate.inner.status),
        "inner_steps": estimate.inner.steps,
        "linear_status": str(estimate.linear.status),
        "linear_steps": estimate.linear.steps,
        "linear_residual": estimate.linear.residual,
    }
