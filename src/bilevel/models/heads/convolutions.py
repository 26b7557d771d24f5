"""3×3 convolutions with a border of zeros, and their derivatives, for the passes.

Tensors are (images, height, width, channels); weights (filters, channels, 3, 3).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import conv2d

from bilevel.kernels import threads, winograd
from bilevel.kernels.registers import padded

_REGISTER = 32  # bytes


def convolution(weight: Tensor) -> Convolution:
    """By tiles, if channels and filters fill pairs of registers; else by torch."""
    filters, channels = weight.shape[:2]
    pair = 2 * _REGISTER // weight.element_size()
    return ByTorch(weight) if filters % pair or channels % pair else ByTiles(weight)


class Convolution(ABC):
    """The convolution of a layer."""

    @abstractmethod
    def forward(self, A: Tensor) -> Tensor:
        """Z = w * A."""

    @abstractmethod
    def back(self, of_Z: Tensor, A: Tensor, of_A: Tensor | None) -> Tensor:
        """∂w; ∂A is written to `of_A`, unless that is None."""


class ByTorch(Convolution):
    """By oneDNN."""

    def __init__(self, weight: Tensor) -> None:
        self._weight = weight.contiguous(memory_format=torch.channels_last)

    def forward(self, A: Tensor) -> Tensor:
        Z = conv2d(A.permute(0, 3, 1, 2), self._weight, padding=1)
        return Z.permute(0, 2, 3, 1).contiguous()

    def back(self, of_Z: Tensor, A: Tensor, of_A: Tensor | None) -> Tensor:
        one, zero, wanted = (1, 1), (0, 0), (of_A is not None, True, False)
        of_Z, A = of_Z.permute(0, 3, 1, 2), A.permute(0, 3, 1, 2)
        found, of_weight, _ = torch.ops.aten.convolution_backward(
            of_Z, A, self._weight, None, one, one, one, False, zero, 1, wanted
        )
        if of_A is not None:
            of_A.copy_(found.permute(0, 2, 3, 1))
        result: Tensor = of_weight
        return result


class ByTiles(Convolution):
    """By `bilevel.kernels.winograd`."""

    def __init__(self, weight: Tensor) -> None:
        self._weight, self._GG = weight, torch.kron(_G, _G).to(weight.dtype)
        size = _REGISTER // weight.element_size()
        self._lanes = tuple(padded(count, weight.element_size()) for count in (size, 2 * size))

    def forward(self, A: Tensor) -> Tensor:
        Z = A.new_empty(*A.shape[:3], len(self._weight))
        self._convolve(A, self._weight, Z)
        return Z

    def back(self, of_Z: Tensor, A: Tensor, of_A: Tensor | None) -> Tensor:
        if of_A is not None:
            self._convolve(of_Z, self._weight.flip(2, 3).transpose(0, 1), of_A)
        filters, channels = self._weight.shape[:2]
        # Each thread has its own sums.
        parts = threads.parts(winograd.tiles(*A.shape[:3]), threads.count())
        sums = A.new_zeros(len(parts), 16, channels * filters)
        given, shape = (A.numpy().reshape(-1), of_Z.numpy().reshape(-1)), (*A.shape[1:], filters)
        calls = [
            partial(winograd.correlate, *given, own.view(-1).numpy(), shape, *self._lanes, *part)
            for own, part in zip(sums, parts, strict=True)
        ]
        threads.run(calls)
        found = self._GG.T @ sums.sum(0)
        return found.reshape(3, 3, channels, filters).permute(3, 2, 0, 1)

    def _convolve(self, A: Tensor, weight: Tensor, Z: Tensor) -> None:
        filters, channels = weight.shape[:2]
        wide = len(self._lanes[1][0])
        factors = self._GG @ weight.permute(2, 3, 1, 0).reshape(9, -1)
        blocks = factors.reshape(16, channels, filters // wide, wide).transpose(1, 2).contiguous()
        arrays = (tensor.numpy().reshape(-1) for tensor in (A, blocks, Z))
        given = *arrays, (*A.shape[1:], filters), *self._lanes
        threads.share(winograd.tiles(*A.shape[:3]), winograd.convolve, *given)


_G = torch.tensor([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]], dtype=torch.float64)
