"""Embeddings that know their own derivative, as an alternative to automatic differentiation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

Parameters = Mapping[str, Tensor]


class Scratch:
    """A pool of tensors for reuse: on some machines a fresh page costs more than its use.

    Threads may share it: `pop` and `append` of a list are atomic.

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
        """An uninitialised tensor."""
        try:
            return self._free[tuple(shape), dtype].pop()
        except (KeyError, IndexError):
            return torch.empty(*shape, dtype=dtype)

    def give(self, *tensors: Tensor) -> None:
        """Return tensors that were taken and are no longer read."""
        for tensor in tensors:
            self._free.setdefault((tuple(tensor.shape), tensor.dtype), []).append(tensor)


class Passes(ABC):
    """z = φ(parameters, images), and the backward pass for one vector-Jacobian product.

    `pull` or `forget` ends its use.
    """

    value: Tensor
    bytes: int  # held for the backward pass

    @abstractmethod
    def pull(self, covector: Tensor) -> dict[str, Tensor]:
        """(∂φ/∂parameters)' covector, by name."""

    @abstractmethod
    def forget(self) -> None:
        """Release what is held for the backward pass."""


class SelfDifferentiating(ABC):
    """An embedding, also a `torch.nn.Module`, whose derivative is faster than autograd's.

    `passes` and autograd through the module must agree up to rounding. Parameters are given by
    name; the others are the module's own. Images are those of one task, (n, channels, height,
    width).
    """

    @abstractmethod
    def serves(self, parameters: Parameters, images: Tensor) -> bool:
        """Whether `passes` can be used; otherwise autograd is."""

    @abstractmethod
    def passes(self, parameters: Parameters, images: Tensor, scratch: Scratch) -> Passes:
        """The passes, with memory from `scratch`; several threads may call this at once."""
