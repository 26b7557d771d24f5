"""The double loop with parts of your choice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bilevel.algorithms.contract import Algorithm
from bilevel.algorithms.double_loop import DoubleLoop, Parts
from bilevel.hypergradients.aid import AID
from bilevel.hypergradients.base import Differentiation
from bilevel.solvers.inner.base import InnerSolver
from bilevel.solvers.inner.newton_cg import NewtonCG
from bilevel.solvers.updates.adam import Adam


@dataclass(frozen=True, kw_only=True)
class Composed(DoubleLoop):
    """Any inner solver, any hypergradient and any update of x, one after another.

    For networks: `hypergradient=bilevel.hypergradients.SAMA()`; DARTS, which is
    `FiniteDifferences(AID(bilevel.linear.Identity(inner learning rate)))`; `AID` with
    `bilevel.linear.Neumann(K, lr)` or `bilevel.linear.Nystrom(rank)`.

    Args:
        inner: one of `bilevel.inner`.
        hypergradient: one of `bilevel.hypergradients`.
        outer: one of `bilevel.updates`; Adam(0.01) if neither it nor `outer_lr` is given.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> steps = bilevel.inner.Steps(bilevel.updates.Momentum(0.05), steps=5, keep=True)
        >>> algorithm = bilevel.algorithms.Composed(
        ...     inner=steps, outer=bilevel.updates.Adam(0.05),
        ...     hypergradient=bilevel.AID(bilevel.linear.Neumann(10, 0.25)))
        >>> bilevel.minimize(halves(), algorithm, steps=300).x
        tensor([0.5000, 0.5000])
    """

    inner: InnerSolver = field(default_factory=NewtonCG)
    hypergradient: Differentiation = field(default_factory=AID)

    steady = True

    def sized(self, sizes: Mapping[str, Any]) -> Algorithm | None:
        return None  # its numbers are in its parts

    def parts(self, k: int) -> Parts:
        return Parts(self.inner, self.hypergradient, self.moves_x(Adam(0.01)))
