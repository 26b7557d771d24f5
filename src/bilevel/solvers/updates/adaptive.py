"""HOAG's own step: tried, and undone if the outer loss rose."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bilevel.numerics.vectors import norm
from bilevel.solvers.updates.base import After, Look, Memory, Update


@dataclass(frozen=True)
class AdaptiveStep(Update):
    """x ← x − ∇Φ/L, where L is doubled when f rose too much and shrunk by 5 % when it fell.

    The first L is ‖∇Φ‖/√p. If f at the new point exceeds f at the last by more than the inexact
    solves explain, or surely fell by less than a tenth of what a step of size 1/L should give,
    the last step is undone and L doubled. If it surely fell by that much, L shrinks. An inner
    solution with gradient ∇y g makes f wrong by v'∇y g to first order, which is taken as the
    uncertainty of each value.

    Args:
        epsilon: ε_k, what the solves of this step were asked for.

    Reference: Pedregosa, ICML 2016, section "Adaptive step size".

    Example:
        >>> import torch
        >>> from bilevel.updates import AdaptiveStep, Look
        >>> update, point = AdaptiveStep(epsilon=0.1), torch.ones(4)
        >>> update.apply(point, torch.ones(4), {}, Look(value=lambda: 2.0))[0]  # L = ‖∇Φ‖/√4
        tensor([0., 0., 0., 0.])
    """

    epsilon: float

    def apply(self, point: Tensor, gradient: Tensor, memory: Memory, look: Look) -> After:
        value, doubt = look.value(), look.doubt(self.epsilon)
        if not memory:
            # A zero hypergradient moves nothing: any L will do.
            L = norm(gradient) / point.numel() ** 0.5 or 1.0
            return self._move(point, gradient, value, doubt, L)
        L, before = memory["L"], memory["value"]
        # Two values can be told apart only beyond what inexact solves and rounding explain.
        either = memory["doubt"] + doubt + 10 * torch.finfo(point.dtype).eps * abs(before)
        # ‖∇Φ‖²/(2L): what a step of 1/L takes off a parabola of curvature L.
        expected = 0.5 * memory["slope"] * memory["length"]
        rose = value > before + either + self.epsilon * memory["length"]
        # A step that surely gained next to nothing has overshot as well: otherwise x may oscillate
        # indefinitely between two points of equal f.
        gained = value <= before - 0.1 * expected or either > 0.1 * expected
        if rose or not gained:
            # From the previous x, along its own hypergradient: that of the rejected x is dropped.
            undone = {**memory, "L": 2 * L, "length": memory["length"] / 2}
            return memory["x"] - memory["h"] / undone["L"], undone
        fell = value <= before - either - expected
        return self._move(point, gradient, value, doubt, 0.95 * L if fell else L)

    def _move(
        self, x: Tensor, h: Tensor, value: float, doubt: float, L: float
    ) -> tuple[Tensor, Memory]:
        slope = norm(h)
        sizes = {"L": L, "value": value, "doubt": doubt, "slope": slope, "length": slope / L}
        return x.sub(h, alpha=1 / L), {**sizes, "x": x, "h": h}
