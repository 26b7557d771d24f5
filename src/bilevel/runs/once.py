"""A single inner solution or hypergradient: the parts of a run on their own."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from bilevel.arguments import instance, natural
from bilevel.errors import UserError
from bilevel.hypergradients.accurate import AccurateAID
from bilevel.hypergradients.aid import AID
from bilevel.hypergradients.base import Differentiation, Estimate, Stand
from bilevel.hypergradients.finite_differences import FiniteDifferences
from bilevel.numerics.vectors import norm
from bilevel.oracles import Counts, Oracle, Views
from bilevel.oracles.differences import Differenced
from bilevel.problem.problem import Problem
from bilevel.problem.structure import Variables
from bilevel.record import Record
from bilevel.solvers.inner.base import InnerSolution, InnerSolver, InnerStatus
from bilevel.solvers.inner.newton_cg import NewtonCG
from bilevel.solvers.linear.cg import if_known

_TOL = 1e-6  # of ‖∇y g‖, and of what it is at y0: small units of g make anything small


@dataclass(frozen=True)
class Hypergradient(Record):
    """An estimate of ∇Φ(x), and how far to trust it.

    Args:
        value: the estimate, in x's structure.
        y: where it was taken, in y's structure.
        v: the solution of ∇²y g v = ∇y f, in y's structure.
        residual: ‖∇y f − ∇²y g v‖ on all rows.
        inner_gradient_norm: ‖∇y g(x, y)‖ on all rows; zero at the exact inner solution.
        status: how the linear solve ended; "not_finite" if the value is not, whatever it says.
        counts: of the oracle calls for the estimate, without these diagnostics.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> problem = halves()
        >>> h = bilevel.hypergradient(problem, problem.x0, problem.y0)
        >>> h.value, h.v, h.residual
        (tensor([-4., -4.]), tensor([-1., -1.]), 0.0)
    """

    value: Variables
    y: Variables
    v: Variables
    residual: float
    inner_gradient_norm: float
    status: str
    counts: Counts


@dataclass(frozen=True)
class Inner(Record):
    """A solution of the inner problem; see `bilevel.inner.InnerSolution`."""

    y: Variables
    gradient_norm: float
    status: str
    steps: int


def solve_inner(
    problem: Problem,
    x: Variables,
    inner: InnerSolver | None = None,
    y: Variables | None = None,
    seed: int = 0,
) -> Inner:
    """Solve min_y g(x, y) from y (the problem's y0 if None), by default with Newton-CG.

    Without `inner`, ‖∇y g‖ falls to 1e-6, and, as far as rounding allows, to 1e-6 of that at y0.

    Example:
        >>> import torch, bilevel
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: (y**2).sum(), inner=lambda x, y: ((y - x) ** 2).sum(),
        ...     x0=torch.ones(1), y0=torch.zeros(1))
        >>> bilevel.solve_inner(problem, torch.tensor([3.0])).y
        tensor([3.])
    """
    _check(problem, inner)
    seed = natural("seed", seed)
    oracle = Views(problem, seed).at(0).whole
    flat = problem.x_structure.point(x)
    start = problem.y0.clone() if y is None else problem.y_structure.point(y)
    with problem.untouched(seed):
        found = (inner or _newton(oracle, flat, problem.y0)).solve(
            oracle, flat, start, oracle.streams(0)
        )
        # On all rows, whatever batches the solver drew.
        size = norm(oracle.inner(flat, found.y).gradient())
    rounded = inner is None and found.status is InnerStatus.STALLED and size <= _TOL
    status = InnerStatus.CONVERGED if rounded else found.status
    return Inner(problem.y_structure.unflatten(found.y), size, str(status), found.steps)


def _newton(oracle: Oracle, x: Tensor, y0: Tensor) -> NewtonCG:
    size = norm(oracle.inner(x, y0).gradient())
    tol = _TOL * min(1.0, size) if 0 < size < math.inf else _TOL
    # Learned penalties may be as large as e^50 beside small ones: CG needs their diagonal.
    return NewtonCG(max(tol, 1e-300), preconditioner=if_known)


def hypergradient(
    problem: Problem,
    x: Variables,
    y: Variables,
    method: Differentiation | None = None,
    inner: InnerSolver | None = None,
    seed: int = 0,
) -> Hypergradient:
    """Estimate ∇Φ(x) at y.

    Args:
        problem: the problem.
        x, y: where, in the structures of x0 and y0 or flat, as `problem.x0` and `problem.y0` are.
        method: `AID(...)` (the default, with CG) or `ITD(...)`.
        inner: solve the inner problem from y first. ITD needs it: it differentiates its steps.
        seed: for sampled methods.

    Example:
        >>> import torch, bilevel
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: (y**2).sum(), inner=lambda x, y: ((y - 3 * x) ** 2).sum(),
        ...     x0=torch.ones(1), y0=torch.zeros(1))
        >>> h = bilevel.hypergradient(problem, torch.ones(1), torch.tensor([3.0]))
        >>> h.value, h.inner_gradient_norm, h.counts.hv
        (tensor([18.]), 0.0, 1)
    """
    _check(problem, inner)
    seed = natural("seed", seed)
    views = Views(problem, seed)
    oracle = views.at(0).whole
    flat_x, flat_y = problem.x_structure.point(x), problem.y_structure.point(y)
    with problem.untouched(seed):
        estimate = _estimate(oracle, flat_x, flat_y, method or AID(), inner)
        # Before the diagnostics below, which are not part of the estimate.
        counts = views.counts
        try:
            measured = Differenced(oracle) if isinstance(method, FiniteDifferences) else oracle
            residual, inner_gradient_norm = _diagnose(measured, flat_x, estimate)
        except UserError:  # g has no second derivative, which the method did not need
            residual, inner_gradient_norm = _diagnose(Differenced(oracle), flat_x, estimate)
    return Hypergradient(
        value=problem.x_structure.unflatten(estimate.value),
        y=problem.y_structure.unflatten(estimate.inner.y),
        v=problem.y_structure.unflatten(estimate.linear.v),
        residual=residual,
        inner_gradient_norm=inner_gradient_norm,
        status=str(estimate.linear.status) if estimate.value.isfinite().all() else "not_finite",
        counts=counts,
    )


def _estimate(
    oracle: Oracle, x: Tensor, y: Tensor, method: Differentiation, inner: InnerSolver | None
) -> Estimate:
    instance("method", method, Differentiation, "bilevel.AID() or bilevel.ITD()")
    if inner is not None:
        return method.estimate(oracle, Stand(x, y), inner, oracle.streams(0))
    return estimate_at(oracle, x, y, method)


def estimate_at(oracle: Oracle, x: Tensor, y: Tensor, method: Differentiation) -> Estimate:
    """An estimate of ∇Φ(x) at the given y."""
    if isinstance(method, FiniteDifferences):
        return estimate_at(Differenced(oracle), x, y, method.method)
    # Implicit methods take any y as it is; only the others need steps to differentiate.
    if isinstance(method, AID | AccurateAID):
        solved = InnerSolution(y)
        return method.at(oracle, x, solved, None, oracle.streams(0))
    raise ValueError(
        f"{type(method).__name__} differentiates inner steps: say which, for example "
        "inner=bilevel.inner.GradientDescent(steps=20, lr=0.1)"
    )


def _check(problem: Problem, inner: InnerSolver | None) -> None:
    instance("problem", problem, Problem, "bilevel.Problem(...)")
    if inner is not None:
        instance("inner", inner, InnerSolver, "bilevel.inner.NewtonCG(tol=1e-8)")


def _diagnose(oracle: Oracle, x: Tensor, estimate: Estimate) -> tuple[float, float]:
    # On all rows, also for sampled methods: this is the yardstick, not the estimate.
    around = oracle.linearize(x, estimate.inner.y)
    _, outer_y = oracle.outer(x, estimate.inner.y).gradient()
    return norm(outer_y - around.hvp(estimate.linear.v)), norm(around.gradient())
