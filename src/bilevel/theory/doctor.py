"""What is wrong with a network's hypergradient, in seconds: differences along a few directions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from bilevel.hypergradients.aid import AID
from bilevel.hypergradients.base import Differentiation
from bilevel.hypergradients.itd import ITD
from bilevel.numerics.vectors import norm
from bilevel.oracles import Oracle, Views
from bilevel.problem.problem import Problem
from bilevel.runs.once import Hypergradient, hypergradient
from bilevel.solvers.inner.base import InnerSolver
from bilevel.solvers.inner.gradient_descent import GradientDescent
from bilevel.solvers.linear.base import LinearStatus
from bilevel.solvers.linear.cg import CG
from bilevel.solvers.linear.inner_hessian import InnerHessian
from bilevel.solvers.measured import Measured

_DIRECTIONS, _CURVATURES = 3, 10  # along which f is compared; steps of CG that look at H
_FAR = 1e-3  # of the first inner gradient: what is left of it is no solution
_ROUGH = 0.1  # by how much differences at two widths may differ


@dataclass(frozen=True)
class Findings:
    """What was compared, and what explains the difference."""

    truth: Tensor
    estimate: Tensor
    found: Hypergradient
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Doctor:
    """Compares d'∇Φ with differences of f(x, y(x)), where y(x) are the inner solver's own steps.

    Each evaluation draws what the first has drawn: the rows, masks and noise are held fixed.

    Args:
        problem: with modules among its variables.
        method: what to check; ITD if None.
        inner: its inner steps; five gradient steps of a measured size if None.
        seed: of all draws.
    """

    problem: Problem
    method: Differentiation | None = None
    inner: InnerSolver | None = None
    seed: int = 0

    def examine(self, x: Tensor) -> Findings:
        """At x, from the problem's y0."""
        method, inner, problem = self.method or ITD(), self.inner or self._steps(x), self.problem
        start = problem.y_structure.unflatten(problem.y0)
        at = problem.x_structure.unflatten(x)
        found = hypergradient(problem, at, start, method, inner, self.seed)
        h = problem.x_structure.flatten(found.value)
        directions = self._directions(x)
        wide, narrow = (self._differences(inner, x, directions, share) for share in (1.0, 0.5))
        notes = tuple(self._notes(method, found, h, wide, narrow, x))
        return Findings(wide, directions @ h, found, notes)

    def _steps(self, x: Tensor) -> InnerSolver:
        oracle, y = self._oracle(), self.problem.y0
        with self.problem.untouched(self.seed):
            # As a number: measured anew at each x, it would be one more function of x.
            return GradientDescent(5, Measured().at(oracle, x, y, oracle.streams(0)))

    def _directions(self, x: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        drawn = torch.randn(_DIRECTIONS, x.numel(), generator=generator, dtype=torch.float64)
        return torch.nn.functional.normalize(drawn, dim=1).to(x)

    def _differences(self, inner: InnerSolver, x: Tensor, along: Tensor, share: float) -> Tensor:
        width = share * float(torch.finfo(x.dtype).eps) ** (1 / 3) * max(1.0, norm(x))

        def phi(p: Tensor) -> Tensor:
            oracle = self._oracle()
            with self.problem.untouched(self.seed):
                y = inner.solve(oracle, p, self.problem.y0, oracle.streams(0)).y
                return oracle.outer(p, y).value()

        return torch.stack([(phi(x + width * d) - phi(x - width * d)) / (2 * width) for d in along])

    def _notes(
        self,
        method: Differentiation,
        found: Hypergradient,
        h: Tensor,
        wide: Tensor,
        narrow: Tensor,
        x: Tensor,
    ) -> Iterator[str]:
        problem, oracle = self.problem, self._oracle()
        y = problem.y_structure.flatten(found.y)
        with problem.untouched(self.seed):
            first = norm(oracle.inner(x, problem.y0).gradient())
            f_y = oracle.outer(x, y).gradient()[1]
            solved = CG(_CURVATURES).solve(InnerHessian(oracle, x, y, oracle.streams(0)), f_y)
        left = found.inner_gradient_norm
        if isinstance(method, AID) and left > _FAR * first:
            yield (
                f"y is not at the inner solution: ‖∇y g‖ is {left:.2g} there, and {first:.2g} at "
                "the start. AID supposes that it is; take more inner steps, or use ITD"
            )
        if solved.status is LinearStatus.NEGATIVE_CURVATURE:
            yield (
                "the inner loss has negative curvature there, so that CG and Neumann series mean "
                "little: use ITD, or add a ridge to the inner loss"
            )
        if problem.chance.names:
            drawn = " and ".join(sorted(problem.chance.names))
            yield f"the losses draw random numbers (of {drawn}); they were held fixed to compare"
        if norm(wide - narrow) > _ROUGH * (norm(wide) or 1.0):
            yield (
                "differences at two widths disagree: the losses have kinks (ReLU, max) nearby, or "
                f"{x.dtype} is too coarse; try float64"
            )
        if self._slope_is_off(x, problem.y0):
            yield (
                "the inner gradient moves with y by more than its derivative says: g detaches "
                "something that depends on y, which is held fixed when steps are differentiated"
            )
        if norm(h) == 0:
            yield (
                "the hypergradient is exactly zero: what y owes to x is detached, or x enters only "
                "where it has no slope"
            )

    def _slope_is_off(self, x: Tensor, y: Tensor) -> bool:
        """Whether differences of ∇y g are not ∇²y g v, with the same draws."""
        v = self._directions(y)[0]
        width = float(torch.finfo(y.dtype).eps) ** (1 / 3) * max(1.0, norm(y))

        def slope(y: Tensor) -> Tensor:
            with self.problem.untouched(self.seed):
                return self._oracle().inner(x, y).gradient()

        with self.problem.untouched(self.seed):
            product = self._oracle().linearize(x, y).hvp(v)
        differences = (slope(y + width * v) - slope(y - width * v)) / (2 * width)
        coarse = y.dtype != torch.float64
        return norm(differences - product) > (0.1 if coarse else 1e-5) * norm(differences)

    def _oracle(self) -> Oracle:
        return Views(self.problem, self.seed).at(0).whole
