"""Softmax regression as a bilevel problem: outer sample weights or penalties, inner weights W.

    g(x, W) = (1/n) Σ_i s_i(x) ℓ(W'a_i, b_i) + R(x, W),      f(x, W) = (1/m) Σ_i ℓ(W'a_i, b_i)

ℓ is the cross-entropy, W has a row per feature and a column per class; or a loss with one column
(`bilevel.models.softmax.losses`). Data hyper-cleaning has s_i = σ(x_i); per-feature regularisation
has R = (1/cp) Σ_jk exp(x_j) W_jk². The losses here are plain torch functions; `SoftmaxOracle` knows
their derivatives in closed form.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from bilevel.arguments import Checked, Positive
from bilevel.models.softmax.losses import CrossEntropy, Loss
from bilevel.problem.sources import Batch
from bilevel.problem.structure import Variables

Matrix = Any  # a dense or CSR tensor, or stored rows


@dataclass(frozen=True)
class SigmoidWeights:
    """s_i = σ(x_i): one outer variable per training row (data hyper-cleaning).

    Example:
        >>> import torch, bilevel
        >>> rows = torch.eye(4).double(), torch.tensor([0, 1, 2, 0])
        >>> weights, ridge = bilevel.SigmoidWeights(), bilevel.Ridge(0.1)
        >>> len(bilevel.softmax_problem(rows, rows, weights=weights, penalty=ridge).x0)
        4
    """


class Penalty(Checked, ABC):
    """R(x, W) = Σ_jk c_jk(x) W_jk², with coefficients that may depend on x."""

    @abstractmethod
    def shape(self, features: int, classes: int) -> tuple[int, ...] | None:
        """The shape of its outer variable, None if it has none."""

    @abstractmethod
    def coefficients(self, x: Tensor | None, W: Tensor) -> Tensor | float:
        """c(x), in a shape that multiplies W."""


@dataclass(frozen=True)
class Ridge(Penalty):
    """R = strength · ‖W‖², the same for all weights.

    Example:
        >>> import torch, bilevel
        >>> W = torch.ones(4, 3).double()
        >>> ridge = bilevel.Ridge(0.5)
        >>> float((ridge.coefficients(None, W) * W.square()).sum())  # R = 0.5 ‖W‖²
        6.0
    """

    strength: Positive

    def shape(self, features: int, classes: int) -> None:
        return None

    def coefficients(self, x: Tensor | None, W: Tensor) -> float:
        return self.strength


@dataclass(frozen=True)
class _Learned(Penalty):
    """A penalty that x holds.

    Args:
        scale: the factor in front of the sum; by default one over the number of weights.
    """

    scale: Positive | None = None

    def coefficients(self, x: Tensor | None, W: Tensor) -> Tensor:
        assert x is not None
        c = self.spread(x.exp())
        return c / W.numel() if self.scale is None else c * self.scale

    def spread(self, c: Tensor) -> Tensor:
        """c, spread over rows and columns of W."""
        return c


@dataclass(frozen=True)
class PerFeature(_Learned):
    """R = (1/cp) Σ_jk exp(x_j) W_jk²: one outer variable per feature.

    Args:
        scale: in place of 1/cp.

    Example:
        >>> import torch, bilevel
        >>> rows = torch.eye(4), torch.tensor([0, 1, 2, 0])
        >>> bilevel.softmax_problem(rows, rows, penalty=bilevel.PerFeature())
        Problem(x: 4 numbers, y: 12 numbers, outer_data: 4 rows, inner_data: 4 rows, torch.float32)
    """

    def shape(self, features: int, classes: int) -> tuple[int, ...]:
        return (features,)

    def spread(self, c: Tensor) -> Tensor:
        return c[:, None]


@dataclass(frozen=True)
class PerClass(_Learned):
    """R = (1/cp) Σ_jk exp(x_k) W_jk²: one outer variable per class.

    Args:
        scale: in place of 1/cp.

    Example:
        >>> import torch, bilevel
        >>> rows = torch.eye(4).double(), torch.tensor([0, 1, 2, 0])
        >>> len(bilevel.softmax_problem(rows, rows, penalty=bilevel.PerClass()).x0)
        3
    """

    def shape(self, features: int, classes: int) -> tuple[int, ...]:
        return (classes,)

    def spread(self, c: Tensor) -> Tensor:
        return c[None, :]


@dataclass(frozen=True)
class PerWeight(_Learned):
    """R = (1/cp) Σ_jk exp(x_jk) W_jk²: one outer variable per feature and class.

    Args:
        scale: in place of 1/cp.

    Example:
        >>> import torch, bilevel
        >>> rows = torch.eye(4).double(), torch.tensor([0, 1, 2, 0])
        >>> len(bilevel.softmax_problem(rows, rows, penalty=bilevel.PerWeight()).x0)
        12
    """

    def shape(self, features: int, classes: int) -> tuple[int, ...]:
        return (features, classes)


@dataclass(frozen=True)
class SoftmaxForm:
    """Everything that defines the two losses."""

    train: Matrix  # (n, p)
    train_labels: Tensor  # (n,): classes, or numbers
    validation: Matrix  # (m, p)
    validation_labels: Tensor  # (m,)
    classes: int  # or outputs: the columns of W
    weights: SigmoidWeights | Tensor | None
    penalty: Penalty
    loss: Loss = field(default_factory=CrossEntropy)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of W."""
        return self.train.shape[1], self.classes

    @property
    def weighted(self) -> bool:
        """Whether x holds a weight for each row."""
        return isinstance(self.weights, SigmoidWeights)

    @property
    def penalty_shape(self) -> tuple[int, ...] | None:
        """The shape of x's penalties, if it holds any."""
        return self.penalty.shape(*self.shape)

    def split(self, x: Variables) -> tuple[Tensor | None, Tensor | None]:
        """The parts of x: those of the weights and of the penalties."""
        if isinstance(x, dict):
            return x["weights"], x["penalties"]
        return (x, None) if self.weighted else (None, x)

    def inner(self, x: Variables, W: Tensor, batch: Batch) -> Tensor:
        """g on a batch, for automatic differentiation."""
        rows, labels = batch.data
        of_weights, of_penalties = self.split(x)
        losses = self.loss.of_rows(rows @ W, labels)
        if of_weights is not None:
            losses = of_weights[batch.index].sigmoid() * losses
        elif isinstance(self.weights, Tensor):
            losses = self.weights[batch.index] * losses
        return losses.mean() + (self.penalty.coefficients(of_penalties, W) * W.square()).sum()

    def outer(self, x: Variables, W: Tensor, batch: Batch) -> Tensor:
        """f on a batch, for automatic differentiation."""
        rows, labels = batch.data
        return self.loss.mean(rows @ W, labels)

    def start(self) -> Variables:
        """x = 0: all weights ½, all penalties as exp(0)."""
        zeros = {}
        if self.weighted:
            zeros["weights"] = self.zeros((self.train.shape[0],))
        if self.penalty_shape is not None:
            zeros["penalties"] = self.zeros(self.penalty_shape)
        if not zeros:
            raise ValueError(
                "x would be empty: use SigmoidWeights() as weights, or PerFeature(), "
                "PerClass() or PerWeight() as the penalty"
            )
        return zeros if len(zeros) > 1 else next(iter(zeros.values()))

    def zeros(self, shape: tuple[int, ...]) -> Tensor:
        """Zeros in the precision and on the device of the data."""
        return torch.zeros(shape, dtype=self.train.dtype, device=self.train.device)
