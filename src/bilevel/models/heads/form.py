"""Few-shot learning as a bilevel problem: an embedding φ outside, a linear head per task inside.

    g(φ, W) = Σ_i (1/n) Σ_{j in S_i} ℓ(W_i' z_ij, b_j) + r ‖W_i‖²
    f(φ, W) = (1/T) Σ_i (1/m) Σ_{j in D_i} ℓ(W_i' z_ij, b_j),      z_ij = (φ(image_ij), 1)

Task i has support images S_i and query images D_i of a few classes; ℓ is the cross-entropy. The
inner loss is a sum over tasks, where the paper has their mean: the heads W_i are the same, and the
step size of a head is then its own, whatever the number of tasks. The losses here are plain torch
functions; `HeadOracle` knows their derivatives by W in closed form.

Reference: Ji, Yang & Liang, ICML 2021, Section 5.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from bilevel.oracles.points import Oracle
from bilevel.problem.sources import Batch, Rows
from bilevel.problem.structure import Structure

Parameters = Mapping[str, Tensor]


@dataclass(frozen=True)
class Shape:
    """The order of a task's images: support before query, both class by class."""

    ways: int
    shots: int
    queries: int

    @property
    def support(self) -> int:
        """The number of support images."""
        return self.ways * self.shots

    @property
    def support_labels(self) -> Tensor:
        return torch.arange(self.ways).repeat_interleave(self.shots)

    @property
    def query_labels(self) -> Tensor:
        return torch.arange(self.ways).repeat_interleave(self.queries)


@dataclass(frozen=True)
class HeadForm:
    """Everything that defines the two losses if heads adapt.

    Args:
        embedding: from images (n, channels, height, width) to features (n, p). It sees the
            support and the query images of one task together, so that batch normalisation uses
            the statistics of the task.
        parameters: the embedding's, with their layout in x.
        shape: of the tasks.
        features: p.
        ridge: r.
        heads: how many heads y holds. Task number i has head i mod `heads`.
        learned_start: whether x also holds the head that all tasks start from.
    """

    embedding: nn.Module
    parameters: Structure
    shape: Shape
    features: int
    ridge: float
    heads: int
    learned_start: bool

    def embed(self, parameters: Parameters, images: Tensor) -> Tensor:
        """The features of one task's images, (n, p)."""
        return apply(self.embedding, parameters, images)

    def inner(self, x: Any, W: Tensor, batch: Batch) -> Tensor:
        """g on some tasks, for automatic differentiation."""
        heads = W[batch.index % self.heads]
        logits = self._features(x, batch)[:, : self.shape.support] @ heads
        losses = _losses(logits, self.shape.support_labels)
        return losses.sum() + self.ridge * heads.square().sum()

    def outer(self, x: Any, W: Tensor, batch: Batch) -> Tensor:
        """f on some tasks, for automatic differentiation."""
        logits = self._features(x, batch)[:, self.shape.support :] @ W[batch.index % self.heads]
        return _losses(logits, self.shape.query_labels).mean()

    def _features(self, x: Any, batch: Batch) -> Tensor:
        return with_ones(torch.stack([self.embed(x["embedding"], task) for task in batch.data]))


@dataclass(frozen=True)
class NetworkForm:
    """Everything that defines the two losses if all parameters adapt (MAML).

    y holds, for each task, the embedding's parameters and the head, flat; support and query
    images are embedded separately. g and f depend on x only through the start of y.

    Args:
        embedding, shape, features, heads: as in `HeadForm`.
        parameters: of one task, with their layout in a row of y: {"embedding": ..., "head": ...}.
    """

    embedding: nn.Module
    parameters: Structure
    shape: Shape
    features: int
    heads: int

    def inner(self, x: Any, y: Tensor, batch: Batch) -> Tensor:
        """g on some tasks, the sum of their losses."""
        support = batch.data[:, : self.shape.support]
        logits = self.logits(y[batch.index % self.heads], support)
        return _losses(logits, self.shape.support_labels).sum()

    def outer(self, x: Any, y: Tensor, batch: Batch) -> Tensor:
        """f on some tasks."""
        query = batch.data[:, self.shape.support :]
        logits = self.logits(y[batch.index % self.heads], query)
        return _losses(logits, self.shape.query_labels).mean()

    def logits(self, y: Tensor, images: Tensor) -> Tensor:
        """The logits of each task's images by its own network, (tasks, n, ways)."""
        found = []
        for flat, task in zip(y, images, strict=True):
            own = self.parameters.unflatten(flat)
            features = apply(self.embedding, own["embedding"], task)
            found.append(with_ones(features) @ own["head"])
        return torch.stack(found)


class TaskOracle(Oracle):
    """An oracle of tasks, whose adapted models can be asked about the query images."""

    @abstractmethod
    def query_logits(self, x: Tensor, y: Tensor, rows: Rows = None) -> Tensor:
        """(tasks, query images, ways), for the accuracy."""


def apply(module: nn.Module, parameters: Parameters, images: Tensor) -> Tensor:
    """The module's output with these parameters; its buffers (running statistics) do not change."""
    buffers = {name: _copy(buffer, images.dtype) for name, buffer in module.named_buffers()}
    features: Tensor = functional_call(module, {**parameters, **buffers}, (images,))
    return features


def _copy(buffer: Tensor, dtype: torch.dtype) -> Tensor:
    """A copy in this precision, unless it holds integers."""
    return buffer.to(dtype, copy=True) if buffer.is_floating_point() else buffer.clone()


def with_ones(features: Tensor) -> Tensor:
    """A column of ones after the features: the head's last row is its bias."""
    return torch.cat([features, torch.ones_like(features[..., :1])], dim=-1)


def _losses(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean loss of each task."""
    everyone = labels.expand(len(logits), -1)
    return cross_entropy(logits.mT, everyone, reduction="none").mean(1)
