"""The four blocks and their derivative, written out, with few passes over memory.

With n images of H×W after a convolution, N = nHW, and all but the convolutions by channel:

    Z = w * A,   μ = mean Z,   σ² = mean (Z − μ)² + ε,   k = scale/σ
    M = the greatest of each 2×2 pixels of Z; where scale < 0, the least
    next A = relu(k(M − μ) + shift)                          = pool(relu(normalise(Z)))

and backwards from D, the derivative by the next A:

    D = 0 where relu was,   ∂shift = Σ D,   ∂scale = Σ D(M − μ)/σ
    ∂Z = k(D at the pixels of M) − k(∂shift + (Z − μ)/σ · ∂scale)/N
    ∂w, ∂A: those of the convolution

M is taken before μ and σ are known, so Z is read once on the way forward and once on the way back.
Kept between them are M, a quarter of Z, and Z but for the first block, whose Z is the largest and
the cheapest to make again. Tensors here are (n, height, width, channels).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bilevel.kernels import pixels as kernels
from bilevel.kernels import threads
from bilevel.models.heads.convolutions import convolution
from bilevel.models.heads.recording import Parameters, Passes, Scratch

_EPSILON = 1e-5  # that of batch normalisation
_PIECE = 8 * 2**20  # bytes of Z at a time, which stay in the cache between two passes

Array = np.ndarray[Any, Any]
Source = Callable[[slice], AbstractContextManager[Tensor]]  # some images of a block's input


class FourBlocksPasses(Passes):
    """The passes of one task.

    Args:
        parameters: the i-th block's are "weights.i", "scales.i" and "shifts.i".
        images: (n, channels, height, width).
        scratch: for all tensors.
    """

    @torch.no_grad()
    def __init__(self, parameters: Parameters, images: Tensor, scratch: Scratch) -> None:
        first = images.permute(0, 2, 3, 1).contiguous()
        self._blocks: list[_Block] = []
        self._scratch = scratch
        shape: tuple[int, ...] = first.shape
        source: Source = lambda piece: nullcontext(first[piece])  # noqa: E731
        for i in range(len(parameters) // 3):
            block = _Block(_Layer.of(parameters, i), shape, source, scratch)
            block.forward(keeps=i > 0)
            self._blocks.append(block)
            shape, source = block.M.shape, block.output
        with source(slice(None)) as last:
            self.value = last.permute(0, 3, 1, 2).reshape(len(last), -1).clone()
        self.bytes = sum(t.nbytes for t in self._kept())

    @torch.no_grad()
    def pull(self, covector: Tensor) -> dict[str, Tensor]:
        n, height, width, channels = self._blocks[-1].M.shape
        D = self._like(self._blocks[-1].M)
        D.copy_(covector.reshape(n, channels, height, width).permute(0, 2, 3, 1))
        found: dict[str, Tensor] = {}
        for i in reversed(range(len(self._blocks))):
            of_input = self._like(self._blocks[i - 1].M) if i else None
            found |= self._blocks[i].back(D, of_input).named(i)
            self._scratch.give(D)
            D = D if of_input is None else of_input
        self.forget()
        return found

    def forget(self) -> None:
        self._scratch.give(*self._kept())
        self._blocks = []

    def _kept(self) -> list[Tensor]:
        return [t for block in self._blocks for t in (block.M, block.Z) if t is not None]

    def _like(self, tensor: Tensor) -> Tensor:
        return self._scratch.take(tensor.shape, tensor.dtype)


@dataclass(frozen=True)
class _Layer:
    """A block's parameters, or the derivatives by them."""

    weight: Tensor
    scale: Tensor
    shift: Tensor

    @staticmethod
    def of(parameters: Parameters, i: int) -> _Layer:
        kinds = ("weights", "scales", "shifts")
        return _Layer(*(parameters[f"{kind}.{i}"].detach() for kind in kinds))

    def named(self, i: int) -> dict[str, Tensor]:
        return {f"weights.{i}": self.weight, f"scales.{i}": self.scale, f"shifts.{i}": self.shift}


class _Block:
    """One block's part of the passes.

    Args:
        layer: its parameters.
        shape: of its input.
        source: its input.
        scratch: for tensors.
    """

    def __init__(
        self, layer: _Layer, shape: tuple[int, ...], source: Source, scratch: Scratch
    ) -> None:
        self._convolution, self._weights = convolution(layer.weight), layer.weight.shape
        self._scale, self._shift = layer.scale.numpy(), layer.shift.numpy()
        self._sign = np.sign(self._scale)
        self._source, self._scratch = source, scratch
        n, height, width = shape[:3]
        self._shape = n, height, width, len(self._scale)  # of Z
        half = n, height // 2, width // 2, len(self._scale)
        self.M = scratch.take(half, layer.weight.dtype)
        self.Z: Tensor | None = None  # unless it is kept

    def forward(self, *, keeps: bool) -> None:
        """M, μ, σ and k."""
        means, squares = np.empty((2, self._shape[0], self._shape[3]))
        self.Z = self._scratch.take(self._shape, self.M.dtype) if keeps else None
        for piece in self._pieces():
            with self._source(piece) as A:
                Z = self._convolution.forward(A)
            M = self.M[piece].numpy()
            _on_all(kernels.pool, Z.numpy(), self._sign, M, means[piece], squares[piece])
            if self.Z is not None:
                self.Z[piece] = Z
            del Z  # so that the next one reuses its memory
        mean = means.mean(0)
        within, between = squares.mean(0) / self._pixels, np.square(means - mean).mean(0)
        self._mean = self._rounded(mean)
        self._inverse = self._rounded(1 / np.sqrt(within + between + _EPSILON))  # 1/σ
        self._k = self._scale * self._inverse

    @contextmanager
    def output(self, piece: slice) -> Iterator[Tensor]:
        """The next block's A."""
        M = self.M[piece]
        A = self._scratch.take(M.shape, M.dtype)
        _on_all(kernels.activate, M.numpy(), self._mean, self._k, self._shift, A.numpy())
        yield A
        self._scratch.give(A)

    def back(self, D: Tensor, of_input: Tensor | None) -> _Layer:
        """The derivatives by the parameters, and by the input in `of_input`; D and Z are spent."""
        of_shift, of_scale = self._sums(D)
        N = self._shape[0] * self._pixels
        p = self._rounded(-self._k * of_shift / N)
        q = self._rounded(-self._k * self._inverse * of_scale / N)
        of_weight = torch.zeros(self._weights, dtype=self.M.dtype)
        for piece in self._pieces():
            with self._source(piece) as A:
                Z = self._convolution.forward(A) if self.Z is None else self.Z[piece]
                lines = self._sign, self._mean, self._k, p, q
                _on_all(kernels.spread, Z.numpy(), *lines, D[piece].numpy())
                wanted = None if of_input is None else of_input[piece]
                of_weight += self._convolution.back(Z, A, wanted)
                del Z
        scale, shift = (torch.from_numpy(self._rounded(sums)) for sums in (of_scale, of_shift))
        return _Layer(of_weight, scale, shift)

    def _sums(self, D: Tensor) -> tuple[Array, Array]:
        """∂shift and ∂scale; D becomes 0 where relu was."""
        of_shift, of_scale = np.empty((2, self._shape[0], self._shape[3]))
        lines = self._mean, self._k, self._shift
        _on_all(kernels.mask, self.M.numpy(), *lines, D.numpy(), of_shift, of_scale)
        return of_shift.sum(0), of_scale.sum(0) * self._inverse

    def _pieces(self) -> list[slice]:
        """As many images at a time as make about `_PIECE` bytes of Z, evenly."""
        n, *image = self._shape
        count = -(-n * int(np.prod(image)) * self.M.element_size() // _PIECE)
        size = -(-n // count)
        return [slice(i, i + size) for i in range(0, n, size)]

    @property
    def _pixels(self) -> int:
        return self._shape[1] * self._shape[2]

    def _rounded(self, sums: Array) -> Array:
        """Sums, which are in double precision, in that of the parameters."""
        return sums.astype(self._scale.dtype)


def _on_all(kernel: Callable[..., None], *arrays: Array) -> None:
    """A kernel on all images of its first array, in as many threads as torch has."""
    threads.share(len(arrays[0]), kernel, *arrays)
