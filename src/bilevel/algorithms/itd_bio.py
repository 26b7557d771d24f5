"""ITD-BiO: the paper's Algorithm 1 with iterative differentiation."""

from __future__ import annotations

from dataclasses import dataclass

from bilevel.algorithms.double_loop import DoubleLoop, Parts
from bilevel.algorithms.registry import register
from bilevel.arguments import Schedule, at
from bilevel.hypergradients.itd import ITD
from bilevel.solvers.inner.base import InnerSolver
from bilevel.solvers.inner.gradient_descent import GradientDescent
from bilevel.solvers.measured import Measured
from bilevel.solvers.updates.adagrad import AdaGrad

_SAFE = Measured()


@register(
    "itd-bio",
    paper="Ji, Yang & Liang, ICML 2021, Algorithm 1 (ITD)",
    cost="Gc(f) 2, Gc(g) D, JV D, HV D - 1",
    demo={"inner_steps": 20, "inner_lr": 0.3, "outer_lr": 0.3},
)
@dataclass(frozen=True, kw_only=True)
class ITDBiO(DoubleLoop):
    """D gradient steps from the last y, and the gradient of f(x, y^D(x)) through them.

    Args:
        inner_steps: D, or a schedule k -> D_k.
        inner_lr: α, at most 1/L; by default 1/L is measured at each outer step.
        truncate: how many steps, counted from the last, are differentiated; 0 is first-order
            ITD-BiO, which takes ∇x f as the hypergradient. None means all of them.
        inner: gradient steps of `bilevel.inner`, such as `Steps(Momentum(0.1), 20)`, in place of
            `inner_steps` and `inner_lr`.
        memory: what the graphs of inner steps may take, such as "1GB", or how many are kept at a
            time; see `bilevel.ITD`.
        batch: the rows of f; None means all rows. The inner solver chooses those of its steps.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> algorithm = bilevel.algorithms.ITDBiO(inner_steps=20, inner_lr=0.25, outer_lr=0.1)
        >>> bilevel.minimize(halves(), algorithm, steps=50).x
        tensor([0.5000, 0.5000])
    """

    inner_steps: int | Schedule = 10
    inner_lr: float | Measured = _SAFE
    truncate: int | None = None
    inner: InnerSolver | None = None
    memory: int | str = ITD.memory
    batch: int | None = None

    steady = True

    def parts(self, k: int) -> Parts:
        # Algorithm 1. Lines 4 to 6: D gradient steps. Line 7, ITD: ∂f(x, y^D(x))/∂x, in the form of
        # Proposition 2, where the start y_{k−1}^D counts as a constant. Line 8: x.
        inner = self.inner or GradientDescent(at(self.inner_steps, k), self.inner_lr)
        method = ITD(truncate=self.truncate, memory=self.memory, batch=self.batch)
        return Parts(inner, method, self.moves_x(AdaGrad() if method.samples else None))
