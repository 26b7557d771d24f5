"""The hypergradient from a value function: first derivatives only."""

from __future__ import annotations

from dataclasses import dataclass

from bilevel.arguments import positive, positive_integer
from bilevel.hypergradients.base import Differentiation, Estimate, Stand
from bilevel.oracles.plans import Descend, do
from bilevel.oracles.points import Oracle
from bilevel.oracles.prices import Cost
from bilevel.problem.sampling import Streams
from bilevel.solvers.inner.base import GradientSteps, InnerSolution, InnerSolver, InnerStatus
from bilevel.solvers.linear.base import LinearSolution, LinearStatus


@dataclass(frozen=True)
class ValueFunction(Differentiation):
    """∇Φ(x) ≈ ∇x f(x, p) + λ (∇x g(x, p) − ∇x g(x, y)), with p near argmin f(x, ·)/λ + g(x, ·).

    y takes the inner solver's gradient steps on g, and p the same steps on g + f/λ, on the same
    rows: the noise of the difference would else be λ times as large. p starts from y − v/λ, with v
    of the last outer step: λ (y − p) tends to (∇²y g)⁻¹ ∇y f, which is the v of implicit methods.
    The estimate is wrong by the order of 1/λ.

    Args:
        multiplier: λ.
        batch: the rows of f, for each step of p; None is all rows.

    Example:
        >>> import torch, bilevel
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: (y**2).sum(), inner=lambda x, y: ((y - 3 * x) ** 2).sum(),
        ...     x0=torch.ones(1), y0=torch.zeros(1))
        >>> found = bilevel.hypergradient(
        ...     problem, torch.ones(1), torch.tensor([3.0]),
        ...     method=bilevel.ValueFunction(multiplier=1000.0),
        ...     inner=bilevel.inner.GradientDescent(50, 0.25))
        >>> abs(float(found.value) - 18) < 0.1
        True

    Reference: Kwon, Kwon, Wright & Nowak, "A fully first-order method for stochastic bilevel
    optimization", ICML 2023; the shared rows and the division by λ, Chen, Ma & Zhang, 2023.
    """

    multiplier: float
    batch: int | None = None

    def __post_init__(self) -> None:
        positive("multiplier", self.multiplier)
        if self.batch is not None:
            positive_integer("batch", self.batch)

    @property
    def samples(self) -> bool:
        return self.batch is not None

    def price(self, inner: InnerSolver, warm: bool) -> Cost:
        steps = inner.price()
        # Each step of p asks for both partial gradients of f, although it uses only one.
        of_f = None if steps.gc_g is None else 2 * steps.gc_g
        return steps + steps + Cost(gc_f=of_f, gc_g=2) + Cost(gc_f=2)

    def estimate(
        self, oracle: Oracle, stand: Stand, inner: InnerSolver, streams: Streams
    ) -> Estimate:
        if not isinstance(inner, GradientSteps):
            raise ValueError(
                f"ValueFunction takes the inner solver's gradient steps twice, but "
                f"{type(inner).__name__} is not made of them: use GradientDescent or SGD"
            )
        x, penalty = stand.x, self.multiplier
        steps = inner.plan(oracle, x, stand.y, streams)
        p = stand.y if stand.v is None else stand.y.sub(stand.v, alpha=1 / penalty)
        y = do(Descend(x, stand.y, steps), oracle)
        # One more than there are steps: the last is for ∇x f.
        outer = streams.batches("outer", self.batch, len(steps) + 1)
        for (rows, lr), rows_f in zip(steps, outer, strict=False):
            f_y = oracle.outer(x, p, rows_f).gradient()[1]
            p = p.sub(oracle.inner(x, p, rows).gradient().add(f_y, alpha=1 / penalty), alpha=lr)
        f_x, _ = oracle.outer(x, p, outer[-1]).gradient()
        rows = steps[-1].rows
        # A difference of nearly equal vectors: rounding is magnified by λ, while the bias falls as
        # 1/λ. In single precision a λ far above 1/√eps ≈ 3000 makes the estimate worse.
        gap = oracle.inner(x, p, rows).gradient_x() - oracle.inner(x, y, rows).gradient_x()
        value = oracle.pull(x, f_x + penalty * gap)
        linear = LinearSolution((y - p) * penalty, LinearStatus.STEP_LIMIT, len(steps), None)
        return Estimate(value, InnerSolution(y, InnerStatus.STEP_LIMIT, len(steps)), linear)
