"""Where the inner steps start, and how that start depends on x."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from bilevel.oracles.points import Oracle


class Start(ABC):
    """The first inner iterate y^0."""

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
    """y^0 is the loop's current point: the last y, or y0."""

    def point(self, oracle: Oracle, x: Tensor, y: Tensor) -> Tensor:
        return y

    def add_covector(
        self, oracle: Oracle, x: Tensor, h: Tensor, last: Callable[[], Tensor]
    ) -> Tensor:
        return h


@dataclass(frozen=True)
class LearnedStart(Start):
    """y^0 is the problem's y0 as a function of x."""

    needs_last = True

    def point(self, oracle: Oracle, x: Tensor, y: Tensor) -> Tensor:
        return oracle.start(x, y).point()

    def add_covector(
        self, oracle: Oracle, x: Tensor, h: Tensor, last: Callable[[], Tensor]
    ) -> Tensor:
        # The second x stands in for y, which `pull` does not use.
        return h + oracle.start(x, x).pull(last())
