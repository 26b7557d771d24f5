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
        inner: the part of the error that is due to y − y*.
        linear: the part that is due to the linear solve (to its mean, for a sampled one).
        constants: what the bound is based on.

    Example:
        >>> import torch, bilevel
        >>> I = torch.eye(2).double()
        >>> problem = bilevel.quadratic_problem(2 * I, I, I[0], I, I[1])
        >>> found = bilevel.certify(problem, I[0], I[0])
        >>> found.rigorous, found.stationarity == found.norm + found.error
        (True, True)
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
        rests = "proven bounds" if self.rigorous else "estimated constants, so it may not hold"
        return (
            f"‖∇Φ‖ ≤ {self.stationarity:.3g}: the norm of the estimate, {self.norm:.3g}, plus "
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
        problem: the problem, or the result of a run, for its problem, x and y.
        x, y, method, inner, seed: as for `hypergradient`. Without a method, y is taken
            as it is and the linear system is solved by CG to 1e-8.
        constants: of `bilevel.theory.estimate` at x and at the y that the inner solver ends with;
            by default they are estimated there.

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
    seed = natural("seed", seed)
    if x is None or y is None:
        raise ValueError("say where: certify(problem, x, y), or certify(result)")
    method = method or _CAREFUL
    _check(method, inner)
    found = hypergradient(problem, x, y, method, inner, seed)
    c = constants or estimate(problem, x, found.y, seed=seed)
    if not c.mu.value > 0:
        raise ValueError(
            f"μ = {c.mu.value} ({c.mu.how}): without strong convexity there is no bound. Add a "
            "ridge to the inner loss."
        )
    value = norm(problem.x_structure.flatten(found.value))
    outer_y, _ = _gradients(problem, x, found.y, seed)
    if isinstance(method, ITD):
        assert isinstance(inner, GradientDescent)
        _, inner_y = _gradients(problem, x, y, seed)
        return Certificate(value, *_of_itd(c, inner, inner_y, outer_y), c)
    assert isinstance(method, AID | AccurateAID)
    short = found.residual / c.mu.value
    size = norm(problem.y_structure.flatten(found.v)) + short
    if isinstance(method.solver, SampledNeumann):
        eta = _checked_step("neumann lr", method.solver.lr, c)
        size = outer_y / c.mu.value
        short = (1 - eta * c.mu.value) ** (method.solver.terms + 1) * size
    return Certificate(value, *_of_aid(c, found.inner_gradient_norm, size, short), c)


def _check(method: Differentiation, inner: InnerSolver | None) -> None:
    if isinstance(method, ITD):
        whole = method.truncate is None and method.start == GivenStart()
        if not isinstance(inner, GradientDescent) or not whole:
            raise ValueError(
                "a certificate for ITD needs inner=bilevel.inner.GradientDescent(...) and ITD() "
                f"with no truncation, got inner={quoted(inner)} and {quoted(method)}"
            )
    elif not isinstance(method, AID | AccurateAID):
        raise TypeError(f"method must be bilevel.AID() or bilevel.ITD(), got {quoted(method)}")
    elif isinstance(method.solver, SampledNeumann) or isinstance(method, AccurateAID):
        return
    elif method.batch.samples_outside:
        raise ValueError(
            f"a certificate does not cover the noise of {quoted(method.batch)}: use all rows for "
            "the outer gradient and the cross product (None), or SampledNeumann, whose mean it "
            "bounds"
        )


def _of_aid(c: Constants, inner_y: float, size: float, short: float) -> tuple[float, float]:
    """The shares of y − y* and of the linear solve, of which `short` is left; ‖v*‖ ≤ `size`."""
    e = inner_y / c.mu.value
    d = (c.rho.value * size + c.L_fy.value) * e / c.mu.value
    of_y = c.L_fx.value * e + c.cross.value * d + c.tau.value * e * (size + d)
    return of_y, c.cross.value * short


def _of_itd(
    c: Constants, inner: GradientDescent, inner_y: float, outer_y: float
) -> tuple[float, float]:
    """The same two shares, from ‖∇y g‖ at the start and ‖∇y f‖ at the end of the inner steps."""
    mu, D, alpha = c.mu.value, inner.steps, _checked_step("inner lr", inner.lr, c)
    q, e0 = 1 - alpha * mu, inner_y / mu
    p = (c.cross.value + c.tau.value * e0) / mu  # the path stays within e0 of y*
    jacobian = q**D * p + alpha * (c.tau.value + c.rho.value * p) * D * q ** (D - 1) * e0
    return (c.L_fx.value + c.L_fy.value * p) * q**D * e0, outer_y * jacobian


def _checked_step(name: str, lr: Rate, c: Constants) -> float:
    if not isinstance(lr, int | float):
        raise ValueError(f"a certificate needs {name} as a number, got {quoted(lr)}")
    if lr * c.L_g.value > 1 + 1e-9:
        raise ValueError(
            f"{name} = {lr} is above 1/L = {1 / c.L_g.value:.3g}: the bound needs at most that"
        )
    return lr


def _gradients(problem: Problem, x: Variables, y: Variables, seed: int) -> tuple[float, float]:
    """‖∇y f‖ and ‖∇y g‖ on all rows."""
    oracle = Views(problem, seed).at(0).whole
    at = problem.x_structure.point(x), problem.y_structure.point(y)
    with problem.untouched(seed):
        return norm(oracle.outer(*at).gradient()[1]), norm(oracle.inner(*at).gradient())
