"""Reverse-mode hypergradients through a cold-started inner loop."""

from __future__ import annotations

from dataclasses import dataclass

from bilevel.algorithms.double_loop import DoubleLoop, Parts
from bilevel.algorithms.registry import register
from bilevel.arguments import Flag, Schedule, at
from bilevel.hypergradients.itd import ITD
from bilevel.solvers.inner.gradient_descent import GradientDescent


@register(
    "reverse",
    paper="Franceschi, Donini, Frasconi & Pontil, ICML 2017, Algorithm 1 (reverse-HG)",
    cost="Gc(f) 2, Gc(g) D, JV T, HV T - 1 for T differentiated steps (D unless truncated)",
    demo={"inner_steps": 40, "inner_lr": 0.3, "outer_lr": 0.3},
)
@dataclass(frozen=True, kw_only=True)
class Reverse(DoubleLoop):
    """D gradient steps from y0 each time, and the gradient of f(x, y^D(x)) through them.

    Args:
        inner_steps: D, or a schedule k -> D_k.
        inner_lr: α, at most 1/L.
        truncate: how many steps, counted from the last, are differentiated (Shaban et al.,
            AISTATS 2019).
        checkpoint: n stores only every n-th iterate; see `bilevel.ITD`.
        warm_start: False here, as in the paper by Franceschi et al.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> algorithm = bilevel.algorithms.Reverse(inner_steps=20, inner_lr=0.25, outer_lr=0.1)
        >>> bilevel.minimize(halves(), algorithm, steps=50).x
        tensor([0.5000, 0.5000])
    """

    inner_steps: int | Schedule = 10
    inner_lr: float = 0.1
    truncate: int | None = None
    checkpoint: int | None = None
    warm_start: Flag = False

    steady = True

    def parts(self, k: int) -> Parts:
        # From a fixed y0, y^D is a function of x alone: unless truncated, the estimate is exactly
        # the gradient of f(x, y^D(x)).
        inner = GradientDescent(at(self.inner_steps, k), self.inner_lr)
        return Parts(inner, ITD(self.truncate, self.checkpoint), self.moves_x())
