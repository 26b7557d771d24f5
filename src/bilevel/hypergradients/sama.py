"""SAMA: the hypergradient through the last step of an adaptive optimiser, in three gradients."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bilevel.arguments import optional, positive_integer
from bilevel.hypergradients.base import Differentiation, Estimate, Stand
from bilevel.oracles.differences import alike, along
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import Cost
from bilevel.problem.sampling import Streams
from bilevel.solvers.inner.base import InnerSolver
from bilevel.solvers.inner.steps import Steps
from bilevel.solvers.linear.base import LinearSolution, LinearStatus


@dataclass(frozen=True)
class SAMA(Differentiation):
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

    batch: int | None = None

    takes = Steps
    refusal = (
        "SAMA differentiates the last step of an update; {} is not "
        "made of such: use bilevel.inner.Steps(bilevel.updates.Adam(0.001), steps=10)"
    )

    def __post_init__(self) -> None:
        optional(positive_integer, "batch", self.batch)

    @property
    def samples(self) -> bool:
        return self.batch is not None

    def price(self, inner: InnerSolver, warm: bool) -> Cost:
        return inner.price() + Cost(gc_f=2, gc_g=2)

    def estimate(
        self, oracle: Oracle, stand: Stand, inner: InnerSolver, streams: Streams
    ) -> Estimate:
        self.check(inner)
        assert isinstance(inner, Steps)
        x, y = stand.x, stand.y
        memory, moves = inner.plan(x, y, streams, dict(stand.memory))
        for move in moves:
            before, remembered = y, memory
            point = oracle.inner(x, y, move.rows)
            gradient = point.gradient()
            y, memory = move.update.apply(y, gradient, memory, move.look)
        f_x, f_y = oracle.outer(x, y, streams.rows("outer", self.batch)).gradient()
        # Only the last step is differentiated, as if those before it had not depended on x.
        look = replace(move.look, point=before)
        back = move.update.transpose(f_y, {}, gradient, remembered, look)
        u = back.gradient * -back.scale
        there = alike(oracle, point, x, move.rows)
        # ∇x∇y g u by a difference along u: no product with a second derivative, at any size of y.
        (cross,) = along(lambda y: (there(y).gradient_x(),), y, u)
        value = oracle.pull(x, f_x - cross)
        linear = LinearSolution(u, LinearStatus.STEP_LIMIT, 0, residual=None)
        return Estimate(
            value if back.of_x is None else value + back.of_x,
            inner.solution(y, memory, moves),
            linear,
        )
