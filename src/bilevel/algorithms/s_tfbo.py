"""S-TFBO: a single loop with self-tuning step sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bilevel.algorithms.contract import State
from bilevel.algorithms.registry import register
from bilevel.algorithms.self_tuning import SelfTuning
from bilevel.algorithms.single_loop import Directions, Told
from bilevel.algorithms.triple import triple
from bilevel.oracles.points import Oracle
from bilevel.problem.sampling import Streams
from bilevel.solvers.updates.base import Update


@register(
    "s-tfbo",
    paper="Yang, Ban, Huang, Ma & Ji, ICLR 2025 (S-TFBO)",
    cost="Gc(f) 2, Gc(g) 1, JV 1, HV 1",
    demo={"first": 1.0, "batch": 16},
    steps=400,
)
@dataclass(frozen=True, kw_only=True)
class STFBO(SelfTuning):
    """SOBA's directions, each with a step size from its own norms so far (AdaGrad-norm).

        b² ← b² + ‖D_y‖²,  c² ← c² + ‖D_v‖²,  a² ← a² + ‖D_x‖²
        y ← y − D_y/b,  v ← v − D_v/max(b, c),  x ← x − D_x/(a · max(b, c))

    Steps shrink until they fit the curvature, and there is nothing to tune.

    Args:
        first: the initial b and c; the first step should be no longer than about 1/L.
            None measures L, the largest curvature of g at the start. a begins at 1.
        outer_lr, outer: another way for x to move.
        batch: the rows of g and of f in a step; None is all rows, as in the paper.

    Example:
        >>> import bilevel
        >>> from bilevel.problem.examples import halves
        >>> bilevel.minimize(halves(), bilevel.algorithms.STFBO(), steps=1000).x
        tensor([0.5000, 0.5000])
    """

    def updates(self) -> Mapping[str, Update]:
        return {"y": Told(), "v": Told(), "x": self.moves_x(Told())}

    def directions(self, oracle: Oracle, state: State, streams: Streams) -> Directions:
        inner, outer = streams.rows("inner", self.batch), streams.rows("outer", self.batch)
        D = triple(oracle, state.points, inner, outer)
        sizes = [D[name].square().sum() for name in "xyv"]
        squares = state.points["squares"] + state.points["squares"].new_tensor(sizes)
        a, b, c = squares.sqrt().tolist()
        # v's equation is only as good as y: its step is never longer, and x's never longer than
        # both allow.
        rates = {"y": 1 / b, "v": 1 / max(b, c), "x": 1 / (a * max(b, c))}
        return Directions(D, kept={"squares": squares}, rates=rates)
