"""Embeddings for few-shot learning."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm, conv2d, max_pool2d, relu

from bilevel import kernels as compiled
from bilevel.arguments import positive_integer, valid_seed
from bilevel.models.heads.recording import Parameters, Passes, Scratch, SelfDifferentiating

_SMALL = 32  # pixels; above it the field uses 32 filters, else 64


class FourBlocks(nn.Module, SelfDifferentiating):
    """Four blocks of 3×3 convolution, batch normalisation, ReLU and 2×2 max-pooling.

    Normalisation always uses the statistics of the given images, those of one task: there are no
    running statistics. The convolutions have no bias, which the normalisation would cancel. Pooling
    comes before ReLU, which gives the same result for a quarter of the work.

    Args:
        channels: of the images.
        size: their height and width; at least 16.
        filters: of each convolution; by default 64 for images up to 32×32, and 32 above.
        seed: of the initial weights.

    Example:
        >>> import torch
        >>> from bilevel.few_shot import FourBlocks
        >>> network = FourBlocks(channels=3, size=32)
        >>> network(torch.zeros(2, 3, 32, 32)).shape, network.features
        (torch.Size([2, 256]), 256)

    Reference: Vinyals et al., "Matching networks for one shot learning", NeurIPS 2016; Ji, Yang &
    Liang, ICML 2021, "Datasets and Model Architectures" in the appendix, without its stride of 2,
    which would leave nothing to pool.
    """

    def __init__(
        self, channels: int = 3, size: int = 32, filters: int | None = None, seed: int = 0
    ) -> None:
        super().__init__()
        positive_integer("channels", channels)
        if positive_integer("size", size) < 16:
            raise ValueError(f"size must be at least 16 (four times halved), got {size}")
        usual = 64 if size <= _SMALL else 32
        width = usual if filters is None else positive_integer("filters", filters)
        generator = torch.Generator().manual_seed(valid_seed("seed", seed))
        inputs = [channels, width, width, width]
        self.weights = nn.ParameterList([_kaiming(width, n, generator) for n in inputs])
        # Uniform in [0, 1], as in learn2learn, so that its step sizes carry over.
        self.scales = nn.ParameterList([torch.rand(width, generator=generator) for _ in inputs])
        self.shifts = nn.ParameterList([torch.zeros(width) for _ in inputs])
        self.features = width * (size // 16) ** 2

    def forward(self, images: Tensor) -> Tensor:
        """(n, channels, size, size) -> (n, features)."""
        z: Tensor = images.contiguous(memory_format=torch.channels_last)  # a quarter faster on CPUs
        for weight, scale, shift in zip(self.weights, self.scales, self.shifts, strict=True):
            z = conv2d(z, weight, padding=1)
            z = batch_norm(z, None, None, scale, shift, training=True)
            z = relu(max_pool2d(z, 2))
        return torch.flatten(z, 1)

    def serves(self, parameters: Parameters, images: Tensor) -> bool:
        """With numba, on the CPU, and for an unmodified network."""
        own = self._with(parameters)
        return compiled.usable() and self._is_as_written() and _is_served(images, own)

    def passes(self, parameters: Parameters, images: Tensor, scratch: Scratch) -> Passes:
        """See `bilevel.models.heads.recording.SelfDifferentiating`."""
        from bilevel.models.heads.passes import FourBlocksPasses

        return FourBlocksPasses(self._with(parameters), images, scratch)

    def _with(self, parameters: Parameters) -> dict[str, Tensor]:
        return {**dict(self.named_parameters()), **parameters}

    def _is_as_written(self) -> bool:
        """No subclass, no hooks, and no other parameters."""
        as_many = len(list(self.parameters())) == 3 * len(self.weights)
        is_hooked = bool(self._forward_hooks or self._forward_pre_hooks)
        return type(self) is FourBlocks and as_many and not is_hooked


def _is_served(images: Tensor, parameters: Parameters) -> bool:
    kinds = {(t.dtype, t.device.type) for t in (images, *parameters.values())}
    known = kinds in ({(torch.float32, "cpu")}, {(torch.float64, "cpu")})
    return known and not torch.is_autocast_enabled("cpu")


def _kaiming(width: int, inputs: int, generator: torch.Generator) -> Tensor:
    spread = math.sqrt(2 / (9 * inputs))
    return torch.randn(width, inputs, 3, 3, generator=generator) * spread
