"""MAML: the outer loop learns where the inner steps start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bilevel.algorithms.contract import Algorithm
from bilevel.algorithms.double_loop import DoubleLoop, Parts
from bilevel.algorithms.registry import register
from bilevel.arguments import Flag, Schedule, at
from bilevel.hypergradients.itd import ITD
from bilevel.hypergradients.starts import LearnedStart
from bilevel.solvers.inner.gradient_descent import GradientDescent
from bilevel.solvers.measured import Measured
from bilevel.solvers.updates.descent import Descent


@register(
    "maml",
    paper="Finn, Abbeel & Levine, ICML 2017; ANIL: Raghu, Raghu, Bengio & Vinyals, ICLR 2020",
    cost="Gc(f) 2, Gc(g) D, JV D, HV D",
    demo={"inner_steps": 20, "inner_lr": 0.3, "outer_lr": 0.3},
)
@dataclass(frozen=True, kw_only=True)
class MAML(DoubleLoop):
    """D gradient steps from y0(x), and the gradient of f(x, y^D(x)) through them and the start.

    Give the problem's y0 as a function of x. If y is all the parameters of a network for each
    task, and x their common start, it is MAML; if y is the last layer alone, and x the other
    layers with the last layer's start, it is ANIL. Where y0 does not depend on x, it is ITD-BiO
    without a warm start.

    Args:
        inner_steps: D, or a schedule k -> D_k.
        inner_lr: α; `Measured()` takes 1/L, measured at each outer step.
        warm_start: False here: the start is the problem's.

    Example:
        A start from which one step gets close to two targets.

        >>> import torch, bilevel
        >>> targets = torch.tensor([1.0, 3.0])
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: ((y - targets) ** 2).mean(),
        ...     inner=lambda x, y: ((y - targets) ** 2).sum() / 2,
        ...     x0=torch.zeros(1), y0=lambda x: x.expand(2))
        >>> algorithm = bilevel.algorithms.MAML(inner_steps=1, inner_lr=0.5, outer_lr=1.0)
        >>> bilevel.minimize(problem, algorithm, steps=40).x
        tensor([2.0000])
    """

    inner_steps: int | Schedule = 5
    inner_lr: float | Measured = 0.1
    warm_start: Flag = False

    steady = True

    def sized(self, sizes: Mapping[str, Any]) -> Algorithm | None:
        # Its Φ is f after D steps from a start that is x: not that of an inner solution.
        return None

    def parts(self, k: int) -> Parts:
        inner = GradientDescent(at(self.inner_steps, k), self.inner_lr)
        start = LearnedStart()
        # Given twice: the loop needs the start's point, ITD its derivative in x.
        return Parts(inner, ITD(start=start), self.moves_x(Descent(0.1)), start)
