"""Where the inner steps start, and how that start depends on x."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from bilevel.oracles.points import Oracle


class Start(ABC):
    """The first inner iterate y^0."""

    such_as = "bilevel.hypergradients.LearnedStart()"

    needs_last = False  # whether `add_covector` asks for r

    @abstractmethod
    def point(self, oracle: Oracle, x: Tensor, y: Tensor) -> Tensor:
        """y^0, where y is what the loop would start from."""

    @abstractmethod
    def add_covector(
        self, oracle: Oracle, x: Tensor, h: Tensor, last: Callable[[], Tensor]
    ) -> Tensor:
        """h + ∂/∂x ⟨y^0(x), r⟩, where `last` gives r at the price of one more product."""


@dataclass(frozen=True)
class GivenStart(Start):
    """y^0 is the loop's current point: the last y, or y0.

    Example:
        >>> import torch, bilevel
        >>> from bilevel.problem.examples import halves
        >>> oracle, last = bilevel.oracles.make(halves()), torch.ones(2)
        >>> bilevel.hypergradients.GivenStart().point(oracle, torch.zeros(2), last)
        tensor([1., 1.])
    """

    def point(self, oracle: Oracle, x: Tensor, y: Tensor) -> Tensor:
        return y

    def add_covector(
        self, oracle: Oracle, x: Tensor, h: Tensor, last: Callable[[], Tensor]
    ) -> Tensor:
        return h


@dataclass(frozen=True)
class LearnedStart(Start):
    """y^0 is the problem's y0 as a function of x.

    Example:
        >>> import torch, bilevel
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: (y**2).sum(), inner=lambda x, y: ((y - 1) ** 2).sum(),
        ...     x0=torch.ones(2), y0=lambda x: 3 * x)
        >>> oracle = bilevel.oracles.make(problem)
        >>> bilevel.hypergradients.LearnedStart().point(oracle, problem.x0, torch.zeros(2))
        tensor([3., 3.])
    """

    needs_last = True

    def point(self, oracle: Oracle, x: Tensor, y: Tensor) -> Tensor:
        return oracle.start(x, y).point()

    def add_covector(
        self, oracle: Oracle, x: Tensor, h: Tensor, last: Callable[[], Tensor]
    ) -> Tensor:
        # The second x stands in for y, which `pull` does not use.
        return h + oracle.start(x, x).pull(last())
