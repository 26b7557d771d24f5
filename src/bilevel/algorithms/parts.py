"""What an outer step of a double loop is made of."""

from __future__ import annotations

from dataclasses import dataclass, field

from bilevel.arguments import Checked
from bilevel.hypergradients.base import Differentiation
from bilevel.hypergradients.starts import GivenStart, Start
from bilevel.solvers.inner.base import InnerSolver
from bilevel.solvers.updates.base import Update


@dataclass(frozen=True)
class Parts(Checked):
    """How y, its derivative and x are found.

    Args:
        inner: how y is found.
        hypergradient: how the inner solution is differentiated.
        outer: how x moves.
        start: where the inner steps start.
        warm_v: whether the linear solve starts from the last v.

    Example:
        >>> import bilevel
        >>> inner, outer = bilevel.inner.SGD(10, lr=0.1, batch=8), bilevel.updates.Adam(0.1)
        >>> bilevel.algorithms.Parts(inner, bilevel.AID(), outer).noisy
        True
    """

    inner: InnerSolver
    hypergradient: Differentiation
    outer: Update
    start: Start = field(default_factory=GivenStart)
    warm_v: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.hypergradient.check(self.inner)

    @property
    def noisy(self) -> bool:
        """Whether the estimate rests on batches."""
        return self.inner.samples or self.hypergradient.samples
