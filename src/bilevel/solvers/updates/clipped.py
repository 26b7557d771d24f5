"""Gradients that are shortened before they are used."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bilevel.arguments import Positive
from bilevel.numerics.vectors import dot
from bilevel.numerics.vectors import norm as size
from bilevel.solvers.updates.base import After, Around, Back, Look, Memory


@dataclass(frozen=True)
class Clipped(Around):
    """Any update along g min(1, c/‖g‖): `torch.nn.utils.clip_grad_norm_` without its 1e-6.

    Args:
        update: what moves the point.
        norm: c, the longest gradient passed to it.

    Example:
        >>> import torch
        >>> from bilevel.updates import Clipped, Descent, Look
        >>> step = Clipped(Descent(1.0), norm=1.0)
        >>> step.apply(torch.zeros(2), torch.tensor([3.0, 4.0]), {}, Look())[0]
        tensor([-0.6000, -0.8000])
    """

    norm: Positive

    def apply(self, point: Tensor, gradient: Tensor, memory: Memory, look: Look) -> After:
        return self.update.apply(point, self._clipped(gradient), memory, look)

    def transpose(
        self, r: Tensor, of_memory: dict[str, Tensor], gradient: Tensor, memory: Memory, look: Look
    ) -> Back:
        back = self.update.transpose(r, of_memory, self._clipped(gradient), memory, look)
        length = size(gradient)
        if length <= self.norm:
            return back
        # c g/‖g‖ turns with g but does not grow with it: the component along g is lost.
        across = back.gradient - gradient * (dot(gradient, back.gradient) / length**2)
        return back._replace(gradient=across * (self.norm / length))

    def stationarity(self, point: Tensor, gradient: Tensor) -> float:
        return self.update.stationarity(point, gradient)

    def _clipped(self, gradient: Tensor) -> Tensor:
        length = size(gradient)
        return gradient if length <= self.norm else gradient * (self.norm / length)
