"""AccF2BA: F2BA with Nesterov's momentum on both levels, and restarts."""

from __future__ import annotations

from dataclasses import dataclass

from bilevel.algorithms.double_loop import DoubleLoop, Parts
from bilevel.algorithms.registry import register
from bilevel.arguments import Schedule, at
from bilevel.hypergradients.value_function import ValueFunction
from bilevel.solvers.inner.steps import Steps
from bilevel.solvers.updates.momentum import Nesterov
from bilevel.solvers.updates.restarted import Restarted


@register(
    "acc-f2ba",
    paper="Chen, Ma & Zhang, 2023-25 (AccF2BA); restarts: Li & Lin, ICML 2022",
    cost="Gc(f) 2T + 2, Gc(g) 2T + 2 (two of them ∇x g), JV 0, HV 0",
    demo={"multiplier": 50.0, "inner_lr": 0.3, "outer_lr": 0.2, "inner_steps": 8, "beta": 0.3},
    bias="O(1/λ)",
)
@dataclass(frozen=True, kw_only=True)
class AccF2BA(DoubleLoop):
    """Both inner problems by T accelerated steps; x by accelerated steps with restarts.

    As in F2BA, with y and p moved by Nesterov's steps, and

        w ← x + (1 − θ) (x − x′),   x ← w − γ (∇x f(w, p) + λ (∇x g(w, p) − ∇x g(w, y)))

    where x′ is the previous x; `bilevel.updates.Restarted` drops the momentum once it has carried
    x far.

    Args:
        multiplier: λ, of the order 1/ε for ‖∇Φ‖ ≤ ε; or a schedule k -> λ_k.
        inner_lr: α, at most 1/L.
        beta: the momentum of the inner steps: (√κ − 1)/(√κ + 1) is best.
        outer_lr: γ of plain descent, in place of accelerated steps.
        outer: how x moves, in their place.
        inner_steps: T, or a schedule k -> T_k.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> algorithm = bilevel.algorithms.AccF2BA(
        ...     inner_lr=0.25, outer=bilevel.updates.Restarted(0.05, theta=0.5))
        >>> bilevel.minimize(halves(), algorithm, steps=100).x
        tensor([0.5000, 0.5000])
    """

    multiplier: float | Schedule = 100.0
    inner_lr: float = 0.1
    beta: float = 0.5
    inner_steps: int | Schedule = 10

    steady = True

    def parts(self, k: int) -> Parts:
        inner = Steps(Nesterov(self.inner_lr, self.beta), at(self.inner_steps, k))
        value = ValueFunction(at(self.multiplier, k))
        return Parts(inner, value, self.moves_x(Restarted(0.1)), warm_v=True)
