"""Step sizes from the norms so far (AdaGrad-norm): what the tuning-free methods share."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bilevel.algorithms.single_loop import SingleLoop
from bilevel.arguments import Positive
from bilevel.oracles.points import Oracle
from bilevel.solvers.measured import Measured


@dataclass(frozen=True, kw_only=True)
class SelfTuning(SingleLoop):
    """A single loop that keeps a², b² and c², the squared norms of the directions of x, y and v.

    Args:
        first: the initial b and c; the first step should be no longer than about 1/L.
            None measures L, the largest curvature of g at the start. a begins at 1.
    """

    first: Positive | None = None

    def start(self, oracle: Oracle, x0: Tensor, y0: Tensor) -> dict[str, Tensor]:
        rate = Measured().at(oracle, x0, y0, oracle.streams(0)) if self.first is None else None
        b = 1 / rate if rate else self.first or 1.0
        return {**super().start(oracle, x0, y0), "squares": x0.new_tensor([1.0, b * b, b * b])}
