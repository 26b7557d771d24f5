"""Reverse-mode hypergradients through a cold-started inner loop."""

from __future__ import annotations

from dataclasses import dataclass

from bilevel.algorithms.double_loop import DoubleLoop
from bilevel.algorithms.registry import register
from bilevel.arguments import Schedule, at
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
        truncate: differentiate only the last so many steps (Shaban et al., AISTATS 2019).
        checkpoint: store every so-maniest iterate only; see `bilevel.ITD`.
        warm_start: False here, as in the paper by Franceschi et al.
    """

    inner_steps: int | Schedule = 10
    inner_lr: float = 0.1
    truncate: int | None = None
    checkpoint: int | None = None
    warm_start: bool = False

    def inner_solver(self, k: int) -> GradientDescent:
        return GradientDescent(at(self.inner_steps, k), self.inner_lr)

    def differentiation(self, k: int) -> ITD:
        return ITD(self.truncate, self.checkpoint)

    def cost(self, k: int) -> dict[str, int]:
        D = at(self.inner_steps, k)
        T = D if self.truncate is None else min(D, self.truncate)
        cost = {"gc_f": 2, "jv": T, "hv": max(0, T - 1)}
        return cost if self.checkpoint else {**cost, "gc_g": D}
