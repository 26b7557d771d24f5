"""Implicit differentiation that continues until the hypergradient is accurate."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from bilevel.arguments import Count, NonNegative, Positive
from bilevel.hypergradients.aid import AID
from bilevel.hypergradients.base import Differentiation, Estimate, Stand
from bilevel.numerics.vectors import norm
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import Cost
from bilevel.problem.sampling import Streams
from bilevel.solvers.inner.base import InnerSolution, InnerSolver
from bilevel.solvers.linear.base import LinearSolver
from bilevel.solvers.linear.cg import Preconditioner, if_known
from bilevel.solvers.linear.settled_cg import SettledCG

_CG_STEPS = 1000
_TINY = 1e-30  # replaces a decrease that is zero or negative, by which we cannot divide
_LAG = 1 / 3
_SAFETY = 3.0  # a sensitivity measured at another x may have grown since


@dataclass(frozen=True)
class AccurateAID(Differentiation):
    """AID whose solves end when each one's error is a given fraction of the hypergradient.

    The linear solve: conjugate gradients, with the hypergradient h = ∇x f − ∇x∇y g v computed
    after 4, 6, 9, 14, ... steps, until two in a row differ by at most half of `accuracy` times ‖h‖.

    The inner solve: in rounds, each ended by the inner solver itself; after each, h is
    computed. If a round took ‖∇y g‖ from e to e' and h to h', the remaining error is about
    ‖h' − h‖ e'/(e − e'), and this too must be at most half of `accuracy` times ‖h'‖. The ratio
    ‖h' − h‖/(e − e') is returned as `measured["sensitivity"]`. If it is given, a single round
    may do: one after which three times the sensitivity times e' is small enough.

    Both are estimates from differences, not bounds, and directions of little curvature can mislead
    them. `bilevel.certify` gives bounds.

    Args:
        accuracy: the relative error of the hypergradient at which to stop.
        solver: a linear solver to replace the CG that watches the hypergradient.
        preconditioner: for that CG; by default the oracle's, if it has one.
        rounds: the maximum; 1 accepts what the inner solver gives, without a check.
        sensitivity: as measured before, at a nearby point; None uses what the last outer step
            found.
        measure_every: outer steps from one measurement of the sensitivity to the next.

    Example:
        >>> import torch, bilevel
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: (y**2).sum(), inner=lambda x, y: (y - 3 * x).cosh().sum(),
        ...     x0=torch.ones(1), y0=torch.zeros(1))
        >>> method = bilevel.hypergradients.AccurateAID(accuracy=0.01)
        >>> newton = bilevel.inner.NewtonCG(drop=0.1)
        >>> found = bilevel.hypergradient(problem, torch.ones(1), torch.zeros(1), method, newton)
        >>> abs(float(found.value) - 18) <= 0.01 * 18
        True
    """

    accuracy: Positive = 0.1
    solver: LinearSolver | None = None
    rounds: Count = 20
    sensitivity: NonNegative | None = None
    preconditioner: Preconditioner = if_known
    measure_every: Count = 10

    @property
    def samples(self) -> bool:
        return self.solver is not None and self.solver.samples

    def price(self, inner: InnerSolver, warm: bool) -> Cost:
        # Tolerances decide how many solves there are.
        if self.rounds > 1:
            return Cost(None, None, None, None)
        return inner.price() + Cost(gc_f=2, jv=1 if self.solver else None, hv=None)

    def estimate(
        self, oracle: Oracle, stand: Stand, inner: InnerSolver, streams: Streams
    ) -> Estimate:
        x = stand.x
        found = self.at(oracle, x, stand.solve(inner, oracle, streams), stand.v, streams)
        if self._is_enough(found, self._sensitivity(stand, streams.step)):
            return found
        for _ in range(1, self.rounds):
            # From where the last round ended, with its memory: rounds are one solve with looks.
            here = stand._replace(y=found.inner.y, memory=found.inner.memory)
            solved = here.solve(inner, oracle, streams)
            if solved.steps == 0:  # as near to y* as the solver can get
                return found
            before, found = found, self.at(oracle, x, solved, found.linear.v, streams)
            change, fall = norm(found.value - before.value), _fall(before.inner, found.inner)
            found = replace(
                found,
                inner=replace(found.inner, steps=before.inner.steps + found.inner.steps),
                measured={"sensitivity": change / fall},
            )
            # If the error falls in proportion to ‖∇y g‖, what is left is the last change times
            # e'/(e − e'). Never more than the change itself: that round has made it smaller. Nor
            # less than a third of it: stiff directions of y lead ‖∇y g‖, and others lag behind.
            left = change * min(1.0, max(_LAG, (found.inner.gradient_norm or fall) / fall))
            if left <= self.accuracy / 2 * norm(found.value):
                return found
        return found

    def _sensitivity(self, stand: Stand, step: int) -> float | None:
        """What was measured before, unless it is time to measure again."""
        if self.sensitivity is not None or step % self.measure_every == 0:
            return self.sensitivity
        return stand.measured.get("sensitivity")

    def _is_enough(self, found: Estimate, sensitivity: float | None) -> bool:
        """Whether, by what was measured before, one round will do."""
        e = found.inner.gradient_norm
        if sensitivity is None or e is None:
            return False
        return _SAFETY * sensitivity * e <= self.accuracy / 2 * norm(found.value)

    def at(
        self, oracle: Oracle, x: Tensor, inner: InnerSolution, v: Tensor | None, streams: Streams
    ) -> Estimate:
        """Take the inner solution as it is."""
        solver = self.solver or SettledCG(self.accuracy / 10, _CG_STEPS, self.preconditioner)
        return AID(solver).at(oracle, x, inner, v, streams)


def _fall(before: InnerSolution, after: InnerSolution) -> float:
    """By how much a round lowered ‖∇y g‖ if the solver reports it; else as if from 1 to zero."""
    if before.gradient_norm is None or after.gradient_norm is None:
        return 1.0
    return max(before.gradient_norm - after.gradient_norm, _TINY)
