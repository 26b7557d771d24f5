"""The loss of a row as a function of Z = XW: cross-entropy of classes, logistic, squared.

With P the prediction from Z, each has a gradient E(P), the errors, and a Hessian that takes U = XV
to the spread of U around P; everything else about a linear model is the same for all of them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class Loss(ABC):
    """The loss of each row, with a column of Z for each output.

    `curvature` bounds its Hessian in Z, `bend` how fast that changes, `slope` its gradient.
    """

    curvature: ClassVar[float]
    bend: ClassVar[float]
    slope: ClassVar[float]

    @abstractmethod
    def of_rows(self, Z: Tensor, labels: Tensor) -> Tensor:
        """ℓ, one per row."""

    def mean(self, Z: Tensor, labels: Tensor) -> Tensor:
        """The mean of ℓ over all rows."""
        return self.of_rows(Z, labels).mean()

    @abstractmethod
    def predicted(self, Z: Tensor) -> Tensor:
        """P."""

    @abstractmethod
    def errors(self, P: Tensor, labels: Tensor) -> Tensor:
        """∂ℓ/∂Z; written into P."""

    def along(self, P: Tensor, labels: Tensor, U: Tensor) -> Tensor:
        """⟨∂ℓ/∂Z, U⟩, one per row."""
        return (self.errors(P.clone(), labels) * U).sum(1)

    @abstractmethod
    def spread(self, P: Tensor, U: Tensor) -> Tensor:
        """∂²ℓ/∂Z² U; written into U."""

    @abstractmethod
    def diagonal(self, P: Tensor) -> Tensor:
        """The diagonal of ∂²ℓ/∂Z²."""


@dataclass(frozen=True)
class CrossEntropy(Loss):
    """ℓ = log Σ_k exp(Z_k) − Z_b, a column for each class b."""

    curvature = 0.5
    bend = 1 / math.sqrt(2)
    slope = math.sqrt(2)

    def of_rows(self, Z: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(Z, labels, reduction="none")

    def mean(self, Z: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(Z, labels)

    def predicted(self, Z: Tensor) -> Tensor:
        return Z.softmax(1)

    def errors(self, P: Tensor, labels: Tensor) -> Tensor:
        return P.scatter_add_(1, labels[:, None], P.new_full((len(P), 1), -1.0))

    def along(self, P: Tensor, labels: Tensor, U: Tensor) -> Tensor:
        return (P * U).sum(1) - U.gather(1, labels[:, None])[:, 0]

    def spread(self, P: Tensor, U: Tensor) -> Tensor:
        PU = U.mul_(P)
        return PU.addcmul_(P, PU.sum(1, keepdim=True), value=-1)

    def diagonal(self, P: Tensor) -> Tensor:
        return P * (1 - P)


@dataclass(frozen=True)
class Logistic(Loss):
    """ℓ = log(1 + exp(Z)) − bZ with labels b of 0 and 1: two classes in one column."""

    curvature = 0.25
    bend = 1 / (6 * math.sqrt(3))
    slope = 1.0

    def of_rows(self, Z: Tensor, labels: Tensor) -> Tensor:
        return functional.softplus(Z[:, 0]) - labels * Z[:, 0]

    def predicted(self, Z: Tensor) -> Tensor:
        return Z.sigmoid()

    def errors(self, P: Tensor, labels: Tensor) -> Tensor:
        return P.sub_(labels[:, None])

    def spread(self, P: Tensor, U: Tensor) -> Tensor:
        return U.mul_(P).mul_(1 - P)

    def diagonal(self, P: Tensor) -> Tensor:
        return P * (1 - P)


@dataclass(frozen=True)
class Squared(Loss):
    """ℓ = ½(Z − b)², for numbers b."""

    curvature = 1.0
    bend = 0.0
    slope = math.inf

    def of_rows(self, Z: Tensor, labels: Tensor) -> Tensor:
        return (Z[:, 0] - labels).square() / 2

    def predicted(self, Z: Tensor) -> Tensor:
        return Z.clone()

    def errors(self, P: Tensor, labels: Tensor) -> Tensor:
        return P.sub_(labels[:, None])

    def spread(self, P: Tensor, U: Tensor) -> Tensor:
        return U

    def diagonal(self, P: Tensor) -> Tensor:
        return torch.ones_like(P)
