"""Bounds on a hypergradient's error, from what was measured and the constants."""

from __future__ import annotations

from dataclasses import dataclass

from bilevel.arguments import instance, natural
from bilevel.errors import quoted
from bilevel.hypergradients.accurate import AccurateAID
from bilevel.hypergradients.aid import AID
from bilevel.hypergradients.base import Differentiation
from bilevel.hypergradients.itd import ITD
from bilevel.hypergradients.starts import GivenStart
from bilevel.numerics.vectors import norm
from bilevel.oracles import Views
from bilevel.problem.problem import Problem
from bilevel.problem.structure import Variables
from bilevel.record import Record
from bilevel.runs.once import hypergradient
from bilevel.runs.result import Result
from bilevel.solvers.inner.base import InnerSolver
from bilevel.solvers.inner.gradient_descent import GradientDescent
from bilevel.solvers.linear.cg import CG
from bilevel.solvers.linear.sampled_neumann import SampledNeumann
from bilevel.solvers.measured import Rate
from bilevel.theory import Constants, estimate

_CAREFUL = AID(CG(steps=500, tol=1e-8))


@dataclass(frozen=True)
class Certificate(Record):
    """A bound on the error of a hypergradient, and so on ‖∇Φ‖.

    Args:
        norm: ‖∇̂Φ‖, of the estimate.
        inner: the share of the error that y − y* can have.
        linear: the share that the linear solve can have (of its mean, for a sampled one).
        constants: what it rests on.
    """

    norm: float
    inner: float
    linear: float
    constants: Constants

    @property
    def error(self) -> float:
        """‖∇̂Φ − ∇Φ‖ is at most this (‖E∇̂Φ − ∇Φ‖, for a sampled method)."""
        return self.inner + self.linear

    @property
    def stationarity(self) -> float:
        """‖∇Φ‖ is at most this (at most its mean, for a sampled method)."""
        return self.norm + self.error

    @property
    def rigorous(self) -> bool:
        """Whether the constants are known, so that the bound is certain up to rounding."""
        return self.constants.rigorous

    def __str__(self) -> str:
        rests = "bounds that hold" if self.rigorous else "estimated constants, so it may fail"
        return (
            f"‖∇Φ‖ ≤ {self.stationarity:.3g}: the estimate's norm {self.norm:.3g}, plus "
            f"{self.inner:.3g} for the inner and {self.linear:.3g} for the linear solve. It rests "
            f"on {rests}."
        )


def certify(
    problem: Problem | Result,
    x: Variables | None = None,
    y: Variables | None = None,
    method: Differentiation | None = None,
    inner: InnerSolver | None = None,
    *,
    constants: Constants | None = None,
    seed: int = 0,
) -> Certificate:
    """Estimate ∇Φ(x) as `hypergradient` does, and bound its error: `certify(result)`.

    AID: with e = ‖∇y g(x, y)‖/μ ≥ ‖y − y*‖, r the residual of the linear solve, and
    d = (ρ(‖v‖ + r/μ) + L_fy) e/μ ≥ ‖v̂ − v*‖, where v̂ solves the system at y,

        ‖∇̂Φ − ∇Φ‖ ≤ L_fx e + ‖∇x∇y g‖ (r/μ + d) + τ e (‖v‖ + r/μ + d).

    For the mean of a sampled Neumann series with η ≤ 1/L, (1 − ημ)^(Q+1) ‖∇y f‖/μ stands for r/μ
    (Proposition 3), and ‖∇y f‖/μ for ‖v‖ + r/μ. ITD with D steps of size α ≤ 1/L from y^0:

        ‖∇̂Φ − ∇Φ‖ ≤ (L_fx + L_fy p) q^D e_0 + ‖∇y f‖ (q^D p + α(τ + ρp) D q^(D−1) e_0)

    with q = 1 − αμ, e_0 = ‖∇y g(x, y^0)‖/μ and p ≥ ‖∂y*/∂x‖. This is the paper's lemma with the
    rate of gradient descent on twice differentiable losses, q in place of √q.

    Args:
        problem: the problem, or the result of a run, whose problem, x and y are meant.
        x, y, method, inner, seed: as for `hypergradient`. Without a method, y is taken
            as it is and the linear system is solved by CG to 1e-8.
        constants: of `bilevel.theory.estimate` at x and at the y that the inner solver ends with;
            by default it is called there.

    Example:
        >>> import torch, bilevel
        >>> H = torch.diag(torch.tensor([1.0, 4.0]).double())
        >>> I = torch.eye(2).double()
        >>> problem = bilevel.quadratic_problem(H, I, I[0], I, I[1])
        >>> off = bilevel.certify(problem, I[0], torch.tensor([1.9, 0.0]).double())
        >>> truth = problem.model.hypergradient(I[0])
        >>> value = bilevel.hypergradient(problem, I[0], torch.tensor([1.9, 0.0]).double()).value
        >>> bool((value - truth).norm() <= off.error), off.rigorous
        (True, True)

    Reference: the paper, lemmas "AID" and "ITD" of the appendix, Proposition 3.
    """
    if isinstance(problem, Result):
        end = problem
        return certify(end.problem, end.x, end.y, method, inner, constants=constants, seed=seed)
    instance("problem", problem, Problem, "bilevel.Problem(...)")
    if x is None or y is None:
        raise ValueError("say where: certify(problem, x, y), or certify(result)")
    method = method or _CAREFUL
    if isinstance(method, ITD):
        return _of_itd(problem, x, y, method, inner, constants, seed)
    if not isinstance(method, AID | AccurateAID):
        raise TypeError(f"method must be bilevel.AID() or bilevel.ITD(), got {quoted(method)}")
    return _of_aid(problem, x, y, method, inner, constants, seed)


def _of_aid(
    problem: Problem,
    x: Variables,
    y: Variables,
    method: AID | AccurateAID,
    inner: InnerSolver | None,
    constants: Constants | None,
    seed: int,
) -> Certificate:
    sampled = method.solver if isinstance(method.solver, SampledNeumann) else None
    if sampled is None and isinstance(method, AID) and method.batch.samples_outside:
        raise ValueError(
            f"a certificate cannot see the noise of {quoted(method.batch)}: use all rows for the "
            "outer gradient and the cross product (None), or SampledNeumann, whose mean it bounds"
        )
    found = hypergradient(problem, x, y, method, inner, seed)
    c = constants or estimate(problem, x, found.y, seed=seed)
    mu = _positive(c)
    short = found.residual / mu
    size = norm(problem.y_structure.flatten(found.v)) + short
    if sampled is not None:
        eta = _checked_step("neumann lr", sampled.lr, c)
        size = _At(problem, x, found.y, seed).outer_y() / mu
        short = (1 - eta * mu) ** (sampled.terms + 1) * size
    e = found.inner_gradient_norm / mu
    d = (c.rho.value * size + c.L_fy.value) * e / mu
    of_y = c.L_fx.value * e + c.cross.value * d + c.tau.value * e * (size + d)
    value = norm(problem.x_structure.flatten(found.value))
    return Certificate(value, of_y, c.cross.value * short, c)


def _of_itd(
    problem: Problem,
    x: Variables,
    y: Variables,
    method: ITD,
    inner: InnerSolver | None,
    constants: Constants | None,
    seed: int,
) -> Certificate:
    whole = method.truncate is None and method.start == GivenStart()
    if not isinstance(inner, GradientDescent) or not whole:
        raise ValueError(
            "a certificate for ITD needs inner=bilevel.inner.GradientDescent(...) and ITD() with "
            f"no truncation, got inner={quoted(inner)} and {quoted(method)}"
        )
    found = hypergradient(problem, x, y, method, inner, seed)
    c = constants or estimate(problem, x, found.y, seed=seed)
    mu, D = _positive(c), inner.steps
    alpha = _checked_step("inner lr", inner.lr, c)
    q = 1 - alpha * mu
    e0 = _At(problem, x, y, seed).inner_y() / mu
    p = (c.cross.value + c.tau.value * e0) / mu  # the path stays within e0 of y*
    jacobian = q**D * p + alpha * (c.tau.value + c.rho.value * p) * D * q ** (D - 1) * e0
    of_y = (c.L_fx.value + c.L_fy.value * p) * q**D * e0
    value = norm(problem.x_structure.flatten(found.value))
    outer_y = _At(problem, x, found.y, seed).outer_y()
    return Certificate(value, of_y, outer_y * jacobian, c)


def _positive(c: Constants) -> float:
    if not c.mu.value > 0:
        raise ValueError(
            f"μ = {c.mu.value} ({c.mu.how}): without strong convexity there is no bound. Add a "
            "ridge to the inner loss."
        )
    return c.mu.value


def _checked_step(name: str, lr: Rate, c: Constants) -> float:
    if not isinstance(lr, int | float):
        raise ValueError(f"a certificate needs {name} as a number, got {quoted(lr)}")
    if lr * c.L_g.value > 1 + 1e-9:
        raise ValueError(
            f"{name} = {lr} is above 1/L = {1 / c.L_g.value:.3g}: the bound needs at most that"
        )
    return lr


class _At:
    """Norms of gradients on all rows at a point."""

    def __init__(self, problem: Problem, x: Variables, y: Variables, seed: int) -> None:
        self._problem, self._seed = problem, natural("seed", seed)
        self._x, self._y = problem.x_structure.point(x), problem.y_structure.point(y)
        self._oracle = Views(problem, seed).at(0).whole

    def outer_y(self) -> float:
        with self._problem.untouched(self._seed):
            return norm(self._oracle.outer(self._x, self._y).gradient()[1])

    def inner_y(self) -> float:
        with self._problem.untouched(self._seed):
            return norm(self._oracle.inner(self._x, self._y).gradient())
