"""Is a hypergradient right? Compare it with the truth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bilevel.arguments import instance, natural
from bilevel.errors import UserError
from bilevel.hypergradients.aid import AID
from bilevel.hypergradients.base import Differentiation
from bilevel.hypergradients.finite_differences import FiniteDifferences
from bilevel.hypergradients.itd import ITD
from bilevel.hypergradients.sama import SAMA, LastStep
from bilevel.numerics.vectors import norm
from bilevel.oracles import Oracle, Views
from bilevel.problem.problem import Problem
from bilevel.problem.structure import Variables
from bilevel.record import Record
from bilevel.runs.once import Hypergradient, hypergradient
from bilevel.solvers.inner.base import InnerSolution, InnerSolver
from bilevel.solvers.inner.gradient_descent import GradientDescent
from bilevel.solvers.inner.newton_cg import NewtonCG
from bilevel.solvers.linear.base import LinearStatus
from bilevel.solvers.linear.cg import CG
from bilevel.solvers.linear.dense import Dense
from bilevel.solvers.linear.inner_hessian import InnerHessian
from bilevel.solvers.measured import Measured
from bilevel.theory.soundness import Soundness, bends, differences, directions

_DENSE_LIMIT = 2000  # numbers in y up to which the Hessian is built
_DIRECTIONS = 10
_OF_NETWORKS, _CURVATURES = 3, 10  # directions for a network; steps of CG that look at H
_FAR = 1e-3  # of the first inner gradient: what is left of it is no solution
_AWAY = 10  # times the first inner gradient: the steps are too long
_SHORT = 0.1  # of ∇y f: a linear solve that leaves more explains an error
_ROUGH = 0.1  # by how much differences at two widths may differ


@dataclass(frozen=True)
class HypergradientReport(Record):
    """How far a hypergradient is from the truth.

    Args:
        relative_error: ‖estimate − truth‖/‖truth‖; along random directions for differences.
        truth_norm, estimate_norm: the norms of both.
        against: what the truth is.
        inner_gradient_norm: ‖∇y g‖ at the inner solution that the truth rests on.
        residual: of the method's linear system.
        notes: what may explain a difference.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import means
        >>> problem = means()
        >>> report = bilevel.check_hypergradient(problem, problem.x0)
        >>> report.relative_error < 1e-12, report.notes
        (True, ())
    """

    relative_error: float
    truth_norm: float
    estimate_norm: float
    against: str
    inner_gradient_norm: float
    residual: float
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        notes = "".join(f"\n- {note}" for note in self.notes)
        return (
            f"relative error        {self.relative_error:.2e}\n"
            f"norm of the estimate  {self.estimate_norm:.6g}\n"
            f"norm of the truth     {self.truth_norm:.6g} ({self.against})\n"
            f"inner gradient norm   {self.inner_gradient_norm:.2e}\n"
            f"linear residual       {self.residual:.2e}{notes}"
        )


def check_hypergradient(
    problem: Problem,
    x: Variables,
    method: Differentiation | None = None,
    inner: InnerSolver | None = None,
    seed: int = 0,
) -> HypergradientReport:
    """Compare a method's hypergradient at x with the truth.

    The inner problem is solved by Newton-CG as accurately as rounding allows. The truth is then
    ∇x f − ∇x∇y g H⁻¹ ∇y f with the dense Hessian H, or, for more than 2,000 inner variables, the
    central differences of Φ along ten random directions.

    If x or y is a module, the inner problem is not solved: the truth is the central differences of
    f(x, y(x)) along three directions, where y(x) is the end of `inner`'s steps from y0 and all
    random draws are held fixed. This takes seconds.

    `notes` says what may explain a difference: derivatives of the losses that are not those of
    their values nearby (something is detached, a backward of your own is wrong), a loss that
    changes from call to call, kinks, negative curvature, a y that is no solution.

    Args:
        problem: the problem; float64 is best.
        x: where; `problem.x0` is the start.
        method: what to check; AID with CG by default. It starts from the exact inner solution,
            unless `inner` is given: then from y0, with that solver.
        inner: the method's inner solver; ITD needs one.
        seed: for sampled methods and directions.

    Example:
        >>> import torch, bilevel
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: (y**4).sum(), inner=lambda x, y: (y.exp() - 3 * x * y).sum(),
        ...     x0=torch.ones(3).double(), y0=torch.zeros(3).double())
        >>> report = bilevel.check_hypergradient(problem, torch.ones(3).double())
        >>> report.relative_error < 1e-12, report.against
        (True, 'dense Hessian')
    """
    instance("problem", problem, Problem, "bilevel.Problem(...)")
    seed = natural("seed", seed)
    oracle = Views(problem, seed).at(0).whole
    flat = problem.x_structure.point(x)
    if problem.networks is not None:
        return _Doctor(problem, method, inner, seed).examine(flat)
    with problem.untouched(seed):
        exact = _solve(oracle, flat, problem.y0)
        start = problem.y0 if inner else exact.y
    h = hypergradient(problem, x, problem.y_structure.unflatten(start), method, inner, seed)
    estimate = problem.x_structure.flatten(h.value)
    with problem.untouched(seed):
        if oracle.y_size <= _DENSE_LIMIT:
            against = "dense Hessian"
            truth = AID(Dense()).at(oracle, flat, exact, None, oracle.streams(0)).value
        else:
            against = f"central differences along {_DIRECTIONS} directions"
            along = directions(flat, _DIRECTIONS, seed)
            truth = differences(lambda p: _phi(oracle, p, exact.y), flat, along)
            estimate = along @ estimate
    # The truth, too, rests on what autograd says of the losses.
    notes = tuple(Soundness(problem, flat, problem.y0, seed).doubts())
    return _compared(estimate, truth, against, exact.gradient_norm or 0.0, h.residual, notes)


def _solve(oracle: Oracle, x: Tensor, y: Tensor) -> InnerSolution:
    tol = float(torch.finfo(y.dtype).eps) ** 0.9
    return NewtonCG(tol=tol, cg_steps=2000).solve(oracle, x, y, oracle.streams(0))


def _phi(oracle: Oracle, x: Tensor, y: Tensor) -> Tensor:
    return oracle.outer(x, _solve(oracle, x, y).y).value()


def _compared(estimate: Tensor, truth: Tensor, *others: Any) -> HypergradientReport:
    """The report on an estimate, with the other fields as they are given."""
    error = norm(estimate - truth) / (norm(truth) or 1.0)
    return HypergradientReport(error, norm(truth), norm(estimate), *others)


@dataclass(frozen=True)
class _Doctor:
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

    def examine(self, x: Tensor) -> HypergradientReport:
        """At x, from the problem's y0."""
        method, inner, problem = self.method or ITD(), self.inner or self._steps(x), self.problem
        start = problem.y_structure.unflatten(problem.y0)
        at = problem.x_structure.unflatten(x)
        found = hypergradient(problem, at, start, method, inner, self.seed)
        h = problem.x_structure.flatten(found.value)
        along = directions(x, _OF_NETWORKS, self.seed)

        def phi(p: Tensor) -> Tensor:
            oracle = self._oracle()
            with problem.untouched(self.seed):
                y = inner.solve(oracle, p, problem.y0, oracle.streams(0)).y
                return oracle.outer(p, y).value()

        wide, narrow = (differences(phi, x, along, share) for share in (1.0, 0.5))
        rough = norm(wide - narrow) > _ROUGH * (norm(wide) or 1.0)
        if norm(along @ h - wide) > _ROUGH * norm(wide):
            rough |= norm(bends(phi, x, along)) > _ROUGH * norm(wide)
        notes = tuple(self._notes(method, found, x, rough))
        against = f"central differences of the inner steps along {_OF_NETWORKS} directions"
        solved = found.inner_gradient_norm, found.residual
        return _compared(along @ h, wide, against, *solved, notes)

    def _steps(self, x: Tensor) -> InnerSolver:
        oracle, y = self._oracle(), self.problem.y0
        with self.problem.untouched(self.seed):
            # As a number: measured at each x, it would be one more function of x.
            return GradientDescent(5, Measured().at(oracle, x, y, oracle.streams(0)))

    def _notes(
        self, method: Differentiation, found: Hypergradient, x: Tensor, rough: bool
    ) -> Iterator[str]:
        problem, oracle = self.problem, self._oracle()
        y = problem.y_structure.flatten(found.y)
        with problem.untouched(self.seed):
            first = norm(oracle.inner(x, problem.y0).gradient())
            f_y = oracle.outer(x, y).gradient()[1]
            try:
                solved = CG(_CURVATURES).solve(InnerHessian(oracle, x, y, oracle.streams(0)), f_y)
                curved, once = solved.status is LinearStatus.NEGATIVE_CURVATURE, ""
            except UserError as error:  # there are methods that can do without
                curved, once = False, str(error)
        left, way = found.inner_gradient_norm, method
        if isinstance(way, FiniteDifferences):
            way = way.method
        if once:
            yield once
        if left > _AWAY * first:
            yield (
                f"the inner steps run away: ‖∇y g‖ is {first:.2g} at the start and {left:.2g} at "
                "the end; take smaller ones"
            )
        last = 1 if isinstance(way, SAMA | LastStep) else getattr(way, "truncate", None)
        if last is not None:
            yield (
                f"{type(way).__name__} differentiates the last {last} of the inner steps: what the "
                "others owe to x is left out"
            )
        if isinstance(way, AID) and left > _FAR * first:
            yield (
                f"y is not at the inner solution: ‖∇y g‖ is {left:.2g} there, and {first:.2g} at "
                "the start. AID supposes that it is; take more inner steps, or use ITD"
            )
        if isinstance(way, AID) and not curved and found.residual > _SHORT * norm(f_y):
            yield (
                f"the linear solve leaves {found.residual / norm(f_y):.0%} of ∇y f: take more "
                "steps or terms, or another rate"
            )
        if curved:
            yield (
                "the inner loss has negative curvature there, so that CG and Neumann series mean "
                "little: use ITD, or add a ridge to the inner loss"
            )
        broken_off = curved and isinstance(way, AID)  # so that v is zero
        if not broken_off and norm(problem.x_structure.flatten(found.value)) == 0:
            yield (
                "the hypergradient is exactly zero: what y owes to x is detached, or x enters only "
                "where it has no slope"
            )
        if problem.chance.names:
            drawn = " and ".join(sorted(problem.chance.names))
            yield f"the losses draw random numbers (of {drawn}); they were held fixed to compare"
        coarse = f", or {x.dtype} is too coarse; try float64" * (x.dtype != torch.float64)
        if rough:
            yield (
                "differences at two widths, or to both sides, disagree: the losses have kinks "
                "(ReLU, max, clamp) there" + coarse
            )
        yield from Soundness(problem, x, problem.y0, self.seed).doubts()

    def _oracle(self) -> Oracle:
        return Views(self.problem, self.seed).at(0).whole
