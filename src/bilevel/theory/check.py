"""Is a hypergradient right? Compare it with the truth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bilevel.arguments import instance, natural
from bilevel.hypergradients.aid import AID
from bilevel.hypergradients.base import Differentiation
from bilevel.numerics.vectors import norm
from bilevel.oracles import Oracle, Views
from bilevel.problem.problem import Problem
from bilevel.problem.structure import Variables
from bilevel.record import Record
from bilevel.runs.once import hypergradient
from bilevel.solvers.inner.base import InnerSolution, InnerSolver
from bilevel.solvers.inner.newton_cg import NewtonCG
from bilevel.solvers.linear.dense import Dense
from bilevel.theory.doctor import Doctor

_DENSE_LIMIT = 2000  # numbers in y up to which the Hessian is built
_DIRECTIONS = 10


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

    The inner problem is solved by Newton-CG as far as rounding allows. Then the truth is
    ∇x f − ∇x∇y g H⁻¹ ∇y f with the dense Hessian H, or for more than 2,000 inner variables the
    central differences of Φ along ten random directions.

    Where x or y is a module, no inner solution is looked for: the truth are central differences of
    f(x, y(x)) along three directions, where y(x) are the steps of `inner` from y0 and all random
    draws are held fixed; `notes` say what may explain a difference. That takes seconds.

    Args:
        problem: the problem; float64 is best.
        x: where.
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
    oracle = Views(problem, natural("seed", seed)).at(0).whole
    flat = problem.x_structure.point(x)
    if problem.networks is not None:
        return _of_network(Doctor(problem, method, inner, seed), flat)
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
            directions = _directions(flat, seed)
            truth = _differences(lambda p: _phi(oracle, p, exact.y), flat, directions)
            estimate = directions @ estimate
    scale = norm(truth) or 1.0
    return HypergradientReport(
        relative_error=norm(estimate - truth) / scale,
        truth_norm=norm(truth),
        estimate_norm=norm(estimate),
        against=against,
        inner_gradient_norm=exact.gradient_norm or 0.0,
        residual=h.residual,
    )


def _of_network(doctor: Doctor, x: Tensor) -> HypergradientReport:
    seen = doctor.examine(x)
    return HypergradientReport(
        relative_error=norm(seen.estimate - seen.truth) / (norm(seen.truth) or 1.0),
        truth_norm=norm(seen.truth),
        estimate_norm=norm(seen.estimate),
        against=f"central differences of the inner steps along {len(seen.truth)} directions",
        inner_gradient_norm=seen.found.inner_gradient_norm,
        residual=seen.found.residual,
        notes=seen.notes,
    )


def _solve(oracle: Oracle, x: Tensor, y: Tensor) -> InnerSolution:
    tol = float(torch.finfo(y.dtype).eps) ** 0.9
    return NewtonCG(tol=tol, cg_steps=2000).solve(oracle, x, y, oracle.streams(0))


def _phi(oracle: Oracle, x: Tensor, y: Tensor) -> Tensor:
    return oracle.outer(x, _solve(oracle, x, y).y).value()


def _directions(x: Tensor, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    directions = torch.randn(_DIRECTIONS, x.numel(), generator=generator, dtype=torch.float64)
    return torch.nn.functional.normalize(directions, dim=1).to(x)


def _differences(phi: Callable[[Tensor], Tensor], x: Tensor, directions: Tensor) -> Tensor:
    width = float(torch.finfo(x.dtype).eps) ** (1 / 3) * max(1.0, norm(x))
    return torch.stack(
        [(phi(x + width * d) - phi(x - width * d)) / (2 * width) for d in directions]
    )
