"""The narrow waist: everything that an algorithm may ask of a problem.

All vectors are flat. `rows` names rows of the inner data (of the outer data for f), None all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from bilevel.data import Rows
from bilevel.sampling import Streams


class Linearization(ABC):
    """∇y g around one point (x, y) on one batch: paid for once, many products."""

    @abstractmethod
    def gradient(self) -> Tensor:
        """∇y g(x, y)."""

    @abstractmethod
    def hvp(self, v: Tensor) -> Tensor:
        """∇²y g(x, y) v."""

    @abstractmethod
    def cross(self, v: Tensor) -> Tensor:
        """∇x∇y g(x, y) v, the vector of ∂/∂x ⟨∇y g(x, y), v⟩."""

    @abstractmethod
    def diagonal(self) -> Tensor:
        """The diagonal of ∇²y g(x, y), or NotImplementedError with a remedy."""

    @abstractmethod
    def approximate_inverse(self) -> Callable[[Tensor], Tensor]:
        """The best cheap approximation of v ↦ (∇²y g)⁻¹ v, symmetric and positive definite."""


class Oracle(ABC):
    """Values, gradients and products of a bilevel problem on flat vectors."""

    x_size: int
    y_size: int
    inner_rows: int | None  # rows of the data of g, None without data
    outer_rows: int | None
    seed: int
    dtype: torch.dtype
    device: torch.device

    @abstractmethod
    def outer_value(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        """f(x, y)."""

    @abstractmethod
    def inner_value(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        """g(x, y)."""

    @abstractmethod
    def outer_gradient(self, x: Tensor, y: Tensor, rows: Rows = None) -> tuple[Tensor, Tensor]:
        """(∇x f, ∇y f)."""

    @abstractmethod
    def inner_gradient(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        """∇y g."""

    @abstractmethod
    def inner_value_and_gradient(
        self, x: Tensor, y: Tensor, rows: Rows = None
    ) -> tuple[Tensor, Tensor]:
        """(g, ∇y g), for solvers with a line search."""

    @abstractmethod
    def linearize(self, x: Tensor, y: Tensor, rows: Rows = None) -> Linearization:
        """∇y g around (x, y), ready for products."""

    def streams(self, step: int) -> Streams:
        """The random choices of outer step `step`."""
        return Streams(self.seed, step, self.inner_rows, self.outer_rows)
