"""The hypergradient along random directions of x: in forward mode, or by perturbing x."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bilevel.arguments import Count, Positive
from bilevel.hypergradients.base import Differentiation, Estimate, Stand
from bilevel.oracles.differences import along, refuse_draws
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import Cost
from bilevel.problem.sampling import Streams
from bilevel.solvers.inner.base import GradientSteps, InnerSolution, InnerSolver
from bilevel.solvers.linear.base import LinearSolution


@dataclass(frozen=True)
class Forward(Differentiation):
    """∇x f + E[u ⟨∂_u y^D, ∇y f⟩] over random signs u, ∂_u y^D propagated along D inner steps.

        s ← s − α (∇²y g(x, y) s + ∂/∂ε ∇y g(x + εu, y)),   y ← y − α ∇y g(x, y)

    An unbiased estimate of the derivative of f(x, y^D(x)) for any number of directions; memory
    does not grow with D, and there is no backward pass. The last term is a central difference.

    Args:
        directions: how many u are averaged; the noise falls as one over its square root, and for
            one direction is about √(dim x) times as large as the gradient.

    Example:
        >>> import torch, bilevel
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: (y**2).sum(), inner=lambda x, y: ((y - 3 * x) ** 2).sum(),
        ...     x0=torch.ones(1).double(), y0=torch.zeros(1).double())
        >>> found = bilevel.hypergradient(  # with one number in x there is one direction
        ...     problem, torch.ones(1).double(), torch.tensor([3.0]).double(),
        ...     method=bilevel.hypergradients.Forward(directions=1),
        ...     inner=bilevel.inner.GradientDescent(50, 0.25))
        >>> round(float(found.value), 6)
        18.0

    Reference: Shen et al., "Memory-efficient gradient unrolling for large-scale bi-level
    optimization", NeurIPS 2024 ((FG)²U).
    """

    directions: Count = 1

    takes = GradientSteps
    refusal = (
        "Forward differentiates gradient steps; {} is not made of "
        "them: use GradientDescent or SGD, or EvolutionStrategy, which takes any solver"
    )

    @property
    def samples(self) -> bool:
        return True  # the directions of x

    def price(self, inner: InnerSolver, warm: bool) -> Cost:
        steps = inner.price()
        products = self.directions * (steps.gc_g or 0)
        return steps + Cost(gc_f=2, gc_g=2 * products, hv=products)

    def estimate(
        self, oracle: Oracle, stand: Stand, inner: InnerSolver, streams: Streams
    ) -> Estimate:
        self.check(inner)
        refuse_draws(oracle)
        assert isinstance(inner, GradientSteps)
        x, y = stand.x, stand.y
        signs = streams.normal(self.directions, len(x)).sign().to(x)
        tangents = [torch.zeros_like(y) for _ in signs]
        steps = inner.plan(oracle, x, y, streams)
        for rows, lr in steps:
            around = oracle.linearize(x, y, rows)
            for i, u in enumerate(signs):
                of_x = _mixed(oracle, x, y, u, rows)
                tangents[i] = tangents[i].sub(around.hvp(tangents[i]) + of_x, alpha=lr)
            y = y.sub(around.gradient(), alpha=lr)
        solution = InnerSolution(y, steps=len(steps))
        return _along(oracle, x, solution, list(zip(signs, tangents, strict=True)))


@dataclass(frozen=True)
class EvolutionStrategy(Differentiation):
    """∇x f + (1/Q) Σ_u u ⟨(y(x + μu) − y(x))/μ, ∇y f⟩: the inner solver is run at perturbed x.

    Needs only ∇y g and works with any inner solver, run from the same start on the same rows. u is
    standard normal; the bias is of order μ.

    Args:
        directions: Q.
        size: μ.

    Example:
        >>> import torch, bilevel
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: (y**2).sum(), inner=lambda x, y: ((y - 3 * x) ** 2).sum(),
        ...     x0=torch.ones(1).double(), y0=torch.zeros(1).double())
        >>> found = bilevel.hypergradient(
        ...     problem, torch.ones(1).double(), torch.tensor([3.0]).double(),
        ...     method=bilevel.hypergradients.EvolutionStrategy(directions=2000),
        ...     inner=bilevel.inner.GradientDescent(2, 0.5))
        >>> bool(abs(float(found.value) - 18) < 2)
        True

    Reference: Sow, Ji & Liang, "On the convergence theory for Hessian-free bilevel algorithms",
    NeurIPS 2022 (PZOBO).
    """

    directions: Count = 1
    size: Positive = 0.01

    @property
    def samples(self) -> bool:
        return True

    def price(self, inner: InnerSolver, warm: bool) -> Cost:
        cost = Cost(gc_f=2)
        for _ in range(self.directions + 1):
            cost = cost + inner.price()
        return cost

    def estimate(
        self, oracle: Oracle, stand: Stand, inner: InnerSolver, streams: Streams
    ) -> Estimate:
        refuse_draws(oracle)
        x, k = stand.x, streams.step
        found = stand.solve(inner, oracle, streams)
        pairs = []
        for u in oracle.streams(k).normal(self.directions, len(x)).to(x):
            there = stand._replace(x=x.add(u, alpha=self.size))
            # The streams of this step, restarted: the same rows for all.
            tried = there.solve(inner, oracle, oracle.streams(k))
            pairs.append((u, (tried.y - found.y) / self.size))
        return _along(oracle, x, found, pairs)


def _mixed(oracle: Oracle, x: Tensor, y: Tensor, u: Tensor, rows: Tensor | None) -> Tensor:
    return along(lambda there: (oracle.inner(there, y, rows).gradient(),), x, u)[0]


def _along(
    oracle: Oracle, x: Tensor, solution: InnerSolution, pairs: list[tuple[Tensor, Tensor]]
) -> Estimate:
    """∇x f and the mean of u ⟨∂_u y, ∇y f⟩ over pairs (u, ∂_u y)."""
    f_x, f_y = oracle.outer(x, solution.y).gradient()
    value = oracle.pull(x, f_x)
    for u, tangent in pairs:
        value = value + u * (tangent @ f_y / len(pairs))
    # No linear system is solved and no v implied: the next step has none to start from.
    none = LinearSolution(torch.zeros_like(f_y), steps=len(pairs))
    return Estimate(value, solution, none)
