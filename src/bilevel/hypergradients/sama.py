"""SAMA: the hypergradient through the last step of an adaptive optimiser, in three gradients."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from bilevel.arguments import Count
from bilevel.errors import UserError
from bilevel.hypergradients.base import Differentiation, Estimate, Stand
from bilevel.numerics.vectors import norm
from bilevel.oracles.differences import alike, along
from bilevel.oracles.points import Inner, Oracle
from bilevel.oracles.prices import Cost
from bilevel.problem.sampling import Streams
from bilevel.solvers.inner.base import InnerSolver
from bilevel.solvers.inner.steps import Steps
from bilevel.solvers.linear.base import LinearSolution

At = Callable[[Tensor], Inner]


@dataclass(frozen=True)
class _OfLastStep(Differentiation):
    """∇x f − ∇x∇y g u with u = −(∂step/∂gradient)' ∇y f, of the last inner step."""

    batch: Count | None = None

    takes = Steps
    _looks_before: ClassVar[bool] = False  # whether ∇x g is needed where the last step was taken
    refusal = (
        "SAMA and LastStep differentiate the last step of an update, and {} takes none: use "
        "bilevel.inner.Steps(bilevel.updates.Adam(0.001), steps=10)"
    )

    def price(self, inner: InnerSolver, warm: bool) -> Cost:
        return inner.price() + Cost(gc_f=2, gc_g=2)

    def estimate(
        self, oracle: Oracle, stand: Stand, inner: InnerSolver, streams: Streams
    ) -> Estimate:
        self.check(inner)
        if self._looks_before and oracle.is_coarse:
            raise UserError(
                "a loss computes in half precision (inside autocast), whose rounding is as large "
                "as a one-sided difference: take bilevel.hypergradients.SAMA(), whose difference "
                "is wider, or leave autocast out"
            )
        assert isinstance(inner, Steps)
        x, y = stand.x, stand.y
        memory, moves = inner.plan(x, y, streams, dict(stand.memory))
        for move in moves:
            before, remembered = y, memory
            point = oracle.inner(x, y, move.rows)
            both = self._looks_before and move is moves[-1]
            g_x, gradient = point.gradients() if both else (None, point.gradient())
            y, memory = move.update.apply(y, gradient, memory, move.look)
        f_x, f_y = oracle.outer(x, y, streams.rows("outer", self.batch)).gradient()
        look = replace(move.look, point=before)
        back = move.update.transpose(f_y, {}, gradient, remembered, look)
        u = back.gradient * -back.scale
        cross = self._cross(alike(oracle, point, x, move.rows), before, y, u, g_x)
        value = oracle.pull(x, f_x - cross)
        value = value if back.of_x is None else value + back.of_x
        return Estimate(value, inner.solution(y, memory, moves), LinearSolution(u))

    @abstractmethod
    def _cross(
        self, there: At, before: Tensor, after: Tensor, u: Tensor, g_x: Tensor | None
    ) -> Tensor:
        """∇x∇y g u, given ∇x g before the last step, and y before and after it."""


@dataclass(frozen=True)
class SAMA(_OfLastStep):
    """∇x f − ∇x∇y g(x, y) u with u = −(∂step/∂gradient)' ∇y f, of the last inner step.

    The inverse Hessian is replaced by the derivative of the optimiser's step with respect to its
    gradient: with `Descent(α)`, u = α ∇y f, which is the estimate of DARTS; with `Adam`, u has
    the derivative of its step, elementwise. The product is a central difference of two gradients
    in x, on the rows and with the draws of the last step. This takes three gradients besides the
    inner steps, and no second derivative; replacing the Hessian leaves a lasting bias.

    The derivative of Adam's step is that of `bilevel.updates.Adam`, with its bias correction; the
    width of the difference is that of `bilevel.hypergradients.FiniteDifferences`. The authors' code
    has neither, and also moves y.

    Args:
        batch: the rows of f; None means all rows.

    Example:
        >>> import torch, bilevel
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: ((y - 1) ** 2).sum(),
        ...     inner=lambda x, y: ((y - 3 * x) ** 2).sum(),
        ...     x0=torch.zeros(1), y0=-torch.ones(1))
        >>> algorithm = bilevel.algorithms.Composed(
        ...     inner=bilevel.inner.Steps(bilevel.updates.Adam(0.05), steps=3, keep=True),
        ...     hypergradient=bilevel.hypergradients.SAMA(), outer=bilevel.updates.Adam(0.01))
        >>> bilevel.minimize(problem, algorithm, steps=300).x.round(decimals=2)
        tensor([0.3300])

    Reference: Choe, Mehta, Ahn, Neiswanger, Xie, Strubell & Xing, "Making scalable meta learning
    practical", NeurIPS 2023.
    """

    def _cross(
        self, there: At, before: Tensor, after: Tensor, u: Tensor, g_x: Tensor | None
    ) -> Tensor:
        return along(lambda y: (there(y).gradient_x(),), after, u)[0]


@dataclass(frozen=True)
class LastStep(_OfLastStep):
    """The derivative through the last inner step, in one pass over g fewer than `SAMA`.

    As SAMA, but the product is taken where the step was: before it. There the step's own pass has
    ∇x g as well, so that a one-sided difference needs one gradient in x more, not two:
    ∇x∇y g(x, y) u ≈ (∇x g(x, y + εu) − ∇x g(x, y))/ε with ε = √eps (1 + ‖y‖)/‖u‖. About half of the
    digits are right; what is lost by taking one step for the whole path is more. What a loss
    detaches still moves with y in a difference, here and in SAMA: where weights are a function of
    detached losses, as in Meta-Weight-Net, it is another direction, and ITD the right one.

    Args:
        batch: the rows of f; None means all rows.

    Example:
        >>> import torch, bilevel
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: ((y - 1) ** 2).sum(),
        ...     inner=lambda x, y: ((y - 3 * x) ** 2).sum(),
        ...     x0=torch.zeros(1), y0=-torch.ones(1))
        >>> algorithm = bilevel.algorithms.Composed(
        ...     inner=bilevel.inner.Steps(bilevel.updates.Momentum(0.05), steps=1, keep=True),
        ...     hypergradient=bilevel.hypergradients.LastStep(), outer=bilevel.updates.Adam(0.01))
        >>> bilevel.minimize(problem, algorithm, steps=300).x.round(decimals=2)
        tensor([0.3300])
    """

    _looks_before = True

    def _cross(
        self, there: At, before: Tensor, after: Tensor, u: Tensor, g_x: Tensor | None
    ) -> Tensor:
        assert g_x is not None
        eps = torch.finfo(before.dtype).eps
        step = eps**0.5 * (1 + norm(before)) / (norm(u) or 1.0)
        return there(before.add(u, alpha=step)).gradient_x().sub(g_x).div(step)
