"""Embeddings that know their own derivative, besides those that use automatic differentiation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

Parameters = Mapping[str, Tensor]


class Scratch:
    """Tensors that are used again: on some machines a fresh page costs more than its use.

    Threads may share it: `pop` and `append` of a list are never seen half done.

    Example:
        >>> scratch = Scratch()
        >>> first = scratch.take((2, 3), torch.float32)
        >>> scratch.give(first)
        >>> scratch.take((2, 3), torch.float32) is first
        True
    """

    def __init__(self) -> None:
        self._free: dict[tuple[tuple[int, ...], torch.dtype], list[Tensor]] = {}

    def take(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A tensor with any numbers in it."""
        try:
            return self._free[tuple(shape), dtype].pop()
        except (KeyError, IndexError):
            return torch.empty(*shape, dtype=dtype)

    def give(self, *tensors: Tensor) -> None:
        """Tensors that were taken, and that nobody reads any more."""
        for tensor in tensors:
            self._free.setdefault((tuple(tensor.shape), tensor.dtype), []).append(tensor)


class Passes(ABC):
    """z = φ(parameters, images), and the way back for one vector-Jacobian product.

    After `pull` or `forget` it is used up.
    """

    value: Tensor
    bytes: int  # held for the way back

    @abstractmethod
    def pull(self, covector: Tensor) -> dict[str, Tensor]:
        """(∂φ/∂parameters)' covector, by name."""

    @abstractmethod
    def forget(self) -> None:
        """Give back what is held for the way back."""


class SelfDifferentiating(ABC):
    """An embedding, also a `torch.nn.Module`, with a faster way to its derivative than autograd.

    `passes` and autograd through the module must agree up to rounding. Parameters are given by
    name; what is not among them is the module's own. Images are those of one task, (n, channels,
    height, width).
    """

    @abstractmethod
    def serves(self, parameters: Parameters, images: Tensor) -> bool:
        """Whether `passes` may be asked for; if not, only autograd will do."""

    @abstractmethod
    def passes(self, parameters: Parameters, images: Tensor, scratch: Scratch) -> Passes:
        """With memory from `scratch`; several threads may ask at the same time."""
